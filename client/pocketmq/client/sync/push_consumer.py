"""The blocking PushConsumer: its listener is a plain function, called in threads."""

from typing import Unpack

from pocketmq.client import push_consumer as asynchronous
from pocketmq.client.consume import Listener
from pocketmq.client.push_consumer import PushConsumerOptions
from pocketmq.client.signals import block_until_signal
from pocketmq.client.sync.blocking import Blocking
from pocketmq.remoting.message import MessageQueue
from pocketmq.remoting.subscription import ALL, TAG


class PushConsumer(Blocking):
    """pocketmq.client.PushConsumer for programs without an event loop; the same options and errors.

    with PushConsumer("my_group", listener=on_messages, name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA || tagB")
        consumer.run_until_signal()
    """

    def __init__(
        self, group: str, *, listener: Listener, **options: Unpack[PushConsumerOptions]
    ) -> None:
        self._consumer = asynchronous.PushConsumer(group, listener=listener, **options)
        super().__init__(self._consumer)

    @property
    def group(self) -> str:
        return self._consumer.group

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Get messages of a topic; before or after start()."""
        self._do(lambda: self._consumer.subscribe(topic, expression, expression_type))

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of the topic."""
        self._do(lambda: self._consumer.unsubscribe(topic))

    def suspend(self) -> None:
        """Pull nothing until resume()."""
        self._do(self._consumer.suspend)

    def resume(self) -> None:
        self._do(self._consumer.resume)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._do(self._consumer.assignment)

    def committed(self, queue: MessageQueue) -> int | None:
        """The next offset to read of a queue as it would be committed now."""
        return self._do(lambda: self._consumer.committed(queue))

    def persist_offsets(self) -> None:
        """Commit now instead of at the next turn."""
        self._call(self._consumer.persist_offsets())

    def run_until_signal(self) -> None:
        """Wait for SIGTERM or SIGINT; leaving the `with` then drains and unregisters."""
        block_until_signal()
