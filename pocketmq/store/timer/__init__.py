"""Messages with a delivery time: the wheel, its log, and the service that delivers them."""
