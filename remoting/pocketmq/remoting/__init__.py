"""What both ends of a RocketMQ connection share: codes, frames, messages. The codec does no I/O."""
