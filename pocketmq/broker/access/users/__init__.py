"""Users and policies of RocketMQ 5.x: what they are, where they are kept, how they decide."""
