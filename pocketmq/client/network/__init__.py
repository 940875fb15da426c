"""The client at its name servers and brokers: requests, routes, heartbeats, shared instances."""
