"""Schedules: messages that come again, by cron or interval, held by the broker. PocketMQ only."""
