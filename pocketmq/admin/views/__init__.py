"""One account of a group, a topic, a broker, a message, an account, for every face that shows it."""
