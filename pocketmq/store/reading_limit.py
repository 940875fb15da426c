"""ReadingLimit: up to where readers see the log, while its end may still be taken away.

A master of an elected set cuts the end of its log that no other broker in sync has, when another was elected.
No reader sees what may be cut: neither pulls and pops, nor queries.

1. A queue ends, for readers, with its last record that lies before the limit. Queue offsets are assigned from
   its real end.
2. The broker's own services read the topics of the system whole: what they append comes later in the log than
   what they have read, so it is cut with it.
3. A reader at an offset beyond that, and not beyond the real end, finds nothing new: it is not sent back.
"""

from collections.abc import Callable

from pocketmq.model.names import is_system_topic
from pocketmq.store.queue.consume_queue import ConsumeQueue


class ReadingLimit:
    """Owner: MessageReader. is_set: False while readers see the whole log."""

    __slots__ = ("_position", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._position: Callable[[], int] = int

    def set(self, position: Callable[[], int]) -> None:
        """Show readers what lies before `position`, which is asked at each read."""
        self._position, self.is_set = position, True

    def end_of(self, queue: ConsumeQueue) -> int:
        """Return the offset behind the last entry of a queue that may be read."""
        if not self.is_set or queue.max_position <= (limit := self._position()):
            return queue.max_offset
        return queue.max_offset if is_system_topic(queue.topic) else queue.end_before(limit)

    def hides(self, topic: str, position: int, size: int) -> bool:
        """Return True if a record may not be read yet."""
        is_behind = self.is_set and position + size > self._position()
        return is_behind and not is_system_topic(topic)
