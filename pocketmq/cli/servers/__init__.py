"""Commands that serve, and their processes."""
