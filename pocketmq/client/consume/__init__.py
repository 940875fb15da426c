"""Consuming: assignment of queues, pulling, listeners, redelivery."""
