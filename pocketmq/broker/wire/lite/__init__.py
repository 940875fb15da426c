"""Requests about lite topics: those of RocketMQ's proxy, and those of administrators."""
