"""Replicas: a master that hands out its log, and a slave that follows it. Source: DefaultHAService, 4.9.7."""
