"""Pulls and pops that wait for a message."""
