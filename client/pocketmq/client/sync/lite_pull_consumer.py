"""The blocking LitePullConsumer."""

from collections.abc import Iterable, Iterator
from typing import Unpack

from pocketmq.client import lite_pull_consumer as asynchronous
from pocketmq.client.lite_pull_consumer import LitePullConsumerOptions
from pocketmq.client.sync.blocking import Blocking
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.subscription import ALL, TAG


class LitePullConsumer(Blocking):
    """pocketmq.client.LitePullConsumer for programs without an event loop.

    with LitePullConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest")
        for message in consumer.poll():
            ...
    """

    def __init__(self, group: str, **options: Unpack[LitePullConsumerOptions]) -> None:
        self._consumer = asynchronous.LitePullConsumer(group, **options)
        super().__init__(self._consumer)

    @property
    def group(self) -> str:
        return self._consumer.group

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Share the topic's queues with the group."""
        self._do(lambda: self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        self._do(lambda: self._consumer.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str = ALL) -> None:
        """Take exactly these queues."""
        self._do(lambda: self._consumer.assign(queues, expression))

    def poll(self, timeout_ms: int = 5_000) -> list[MessageExt]:
        """The messages fetched next, of one queue; [] when none came in time."""
        return self._call(self._consumer.poll(timeout_ms))

    def messages(self, timeout_ms: int = 5_000) -> Iterator[MessageExt]:
        """One message after the other, until none comes within the time."""
        while found := self.poll(timeout_ms):
            yield from found

    def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Store offsets at the broker."""
        self._call(self._consumer.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset."""
        return self._call(self._consumer.committed(queue))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._do(self._consumer.assignment)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from that offset."""
        self._do(lambda: self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        self._call(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        self._call(self._consumer.seek_to_end(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch nothing of these queues until resume()."""
        self._do(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._do(lambda: self._consumer.resume(queues))

    def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return self._call(self._consumer.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._call(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """One behind the queue's last message."""
        return self._call(self._consumer.max_offset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after the time."""
        return self._call(self._consumer.offset_for_timestamp(queue, timestamp_ms))
