"""The blocking PullConsumer."""

from typing import Unpack

from pocketmq.client import pull_consumer as asynchronous
from pocketmq.client.config import ClientOptions
from pocketmq.client.pull_result import PullResult
from pocketmq.client.sync.blocking import Blocking
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.subscription import ALL, TAG


class PullConsumer(Blocking):
    """pocketmq.client.PullConsumer for programs without an event loop."""

    def __init__(self, group: str, **options: Unpack[ClientOptions]) -> None:
        self._consumer = asynchronous.PullConsumer(group, **options)
        super().__init__(self._consumer)

    @property
    def group(self) -> str:
        return self._consumer.group

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return self._call(self._consumer.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = ALL,
        expression_type: str = TAG,
        *,
        count_max: int = 32,
        wait_ms: int = 0,
    ) -> PullResult:
        """Messages of a queue from an offset on; see the asyncio PullConsumer."""
        return self._call(
            self._consumer.pull(
                queue, offset, expression, expression_type, count_max=count_max, wait_ms=wait_ms
            )
        )

    def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have the group get the message again."""
        self._call(self._consumer.send_back(message, delay_level))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset at the broker."""
        return self._call(self._consumer.committed(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the next offset to read at the broker."""
        self._call(self._consumer.commit(queue, offset))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._call(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """One behind the queue's last message."""
        return self._call(self._consumer.max_offset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after the time."""
        return self._call(self._consumer.offset_for_timestamp(queue, timestamp_ms))
