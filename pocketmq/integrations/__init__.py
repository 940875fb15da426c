"""Integrations: frameworks that run on PocketMQ, one folder or module a framework, each an extra of its own.

They are users of the client library and import nothing below it; no other room imports them. None of them
imports another, but Celery's result backend, which shares the connections of kombu's transport.
"""
