"""Modes of groups whose members differ; policy.py is the only way in."""
