"""Replication: a master that sends its log, and a slave that follows it. Source: DefaultHAService, 4.9.7."""
