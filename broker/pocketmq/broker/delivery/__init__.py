"""What was given to whom, and what became of a message."""
