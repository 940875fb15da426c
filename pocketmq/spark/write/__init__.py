"""Writing a data frame to topics."""
