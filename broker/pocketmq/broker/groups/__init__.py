"""A group of consumers: who is in it, how far it is, and what it does with members that differ."""
