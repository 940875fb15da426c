"""The client for programs without an event loop: the same names as pocketmq.client, without `await`.

All clients of a process share one background thread with an event loop; see loop_thread.py.
"""

from pocketmq.client.sync.lite_pull_consumer import LitePullConsumer
from pocketmq.client.sync.producer import Producer, TransactionProducer
from pocketmq.client.sync.pull_consumer import PullConsumer
from pocketmq.client.sync.push_consumer import PushConsumer

__all__ = [
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]
