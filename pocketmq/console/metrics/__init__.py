"""Metrics and health for supervisors: page, port, push."""
