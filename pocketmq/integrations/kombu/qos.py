"""QoS: what a channel has delivered and its program has not settled yet."""

from collections.abc import Iterable
from typing import Any, Protocol

from kombu.transport import virtual

from pocketmq.integrations.kombu.intake import Intake, Received


class Settles(Protocol):
    """What a QoS needs of its channel."""

    intake: Intake

    def put_back(self, received: Iterable[Received]) -> None:
        """Give messages back to their queues."""
        ...


class QoS(virtual.QoS):
    """kombu's account of unacknowledged messages, and for each of them what the broker gave."""

    channel: Settles

    def __init__(self, channel: Settles, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._received: dict[str, Received] = {}

    def note(self, tag: str, received: Received) -> None:
        """Note what was received, before it is delivered as `tag`."""
        self._received[tag] = received

    def drop(self, tag: str) -> Received | None:
        """Return and forget what was delivered as `tag`."""
        return self._received.pop(tag, None)

    def ack(self, delivery_tag: str) -> None:
        received = self.drop(delivery_tag)
        if received is not None:
            self.channel.intake.done(received)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        received = self.drop(delivery_tag)
        if received is not None:
            if requeue:
                self.channel.put_back([received])
            else:
                self.channel.intake.done(received)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        received = list(self._received.values())
        self._received.clear()
        self._delivered.clear()
        self._dirty.clear()
        if received:
            self.channel.put_back(received)
        return []
