"""Pop consumption of RocketMQ 5.x's classic clients: the broker hands messages out, remembers until when they
are invisible, and hands them out again unless they are acknowledged."""
