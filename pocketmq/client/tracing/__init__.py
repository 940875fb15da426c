"""RocketMQ's message trace, and spans of OpenTelemetry."""
