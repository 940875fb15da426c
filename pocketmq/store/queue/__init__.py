"""Consume queues: entries, extensions, deletion, search by time."""
