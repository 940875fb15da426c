"""Sending: encoding, the first attempt, retries, limits."""
