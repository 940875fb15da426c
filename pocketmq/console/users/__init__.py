"""Users of the brokers at the console: their log-in, what they see, and the connections they act over."""
