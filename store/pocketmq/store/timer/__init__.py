"""Messages with a time of their own: the wheel, its log, and the service that delivers them."""
