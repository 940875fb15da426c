"""Requests of tools and consoles."""
