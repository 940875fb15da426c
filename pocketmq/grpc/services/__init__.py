"""The services of the 5.x protocol, over acts and peers."""
