"""Connections: sockets, TLS, servers, clients and their limits: the event loop is here."""
