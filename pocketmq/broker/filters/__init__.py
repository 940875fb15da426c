"""Which entries a pull or pop lets through."""
