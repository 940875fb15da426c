"""Requests that send: parsed, by template, and many alike at once."""
