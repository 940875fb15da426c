"""Shared by both ends of a RocketMQ connection: codes, frames, messages. The codec does no I/O."""
