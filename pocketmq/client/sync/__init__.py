"""The client for programs without an event loop: the same names as pocketmq.client, without `await`.

All clients of a process share one background thread with an event loop; see loop_thread.py.
"""

from pocketmq.client.sync.clients import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)

__all__ = [
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SimpleConsumer",
    "TransactionProducer",
]
