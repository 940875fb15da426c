"""The JSON API: one module a subject, one table of routes."""
