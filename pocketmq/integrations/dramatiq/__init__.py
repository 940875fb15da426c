"""Dramatiq's broker.

    dramatiq.set_broker(PocketmqBroker("127.0.0.1:9876"))

A queue is a topic, and a consumer group of that name. A delay, and so the pause before a retry, waits in
the broker; what an actor fails for good is a dead letter of the group.
"""

from pocketmq.remoting.lazy_names import without_extra

try:
    from pocketmq.integrations.dramatiq.broker import PocketmqBroker
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.dramatiq", missing, "dramatiq") from None

__all__ = ["PocketmqBroker"]
