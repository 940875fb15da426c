"""Quick ways to cut a request whose header is like an earlier one; each falls back to the parser."""
