"""Dramatiq's broker.

    dramatiq.set_broker(PocketmqBroker("127.0.0.1:9876"))

A queue is a topic, and a consumer group of that name. A delay, and so the pause before a retry, waits in
the broker; what an actor fails for good is a dead letter of the group.
"""

from pocketmq.integrations.dramatiq.broker import PocketmqBroker

__all__ = ["PocketmqBroker"]
