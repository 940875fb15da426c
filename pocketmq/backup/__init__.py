"""Backups of a store whose broker runs, and stores made of them: cuts (cut.py) in a place (place.py)."""
