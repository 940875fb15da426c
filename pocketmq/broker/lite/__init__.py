"""Lite topics: small topics in a topic, which are there with their first message and go with their age."""
