"""Integrations: frameworks that run on PocketMQ, one folder or module a framework, each an extra of its own.

They are users of the client library and import nothing below it; no other room imports them, and none of them
imports another.
"""
