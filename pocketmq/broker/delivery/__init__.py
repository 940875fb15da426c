"""Records of what was delivered to whom, and the verdict on a single message."""
