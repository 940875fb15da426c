"""Messages as the console finds, filters and shows them."""
