"""MemoryReach: which messages count as being in memory still, by their distance from the log's end.

A group without an offset begins at a queue's first message while that is near, and is left to its own
choice (consumeFromWhere) when it is not. Source: checkInDiskByConsumeOffset, RocketMQ 4.9.7.
"""

import os

from pocketmq.store import MessageStore

# accessMessageInMemoryMaxRatio: the part of the machine's memory that counts as holding the log's end.
_IN_MEMORY_RATIO = 0.4


class MemoryReach:
    """Asks the store; keeps nothing."""

    def __init__(self, store: MessageStore, memory_size: int | None = None) -> None:
        """memory_size: bytes of the machine's memory; None asks the machine."""
        self._store = store
        self._in_memory = int((memory_size or _memory_size()) * _IN_MEMORY_RATIO)

    def begins_on_disk(self, topic: str, queue_id: int) -> bool:
        """Whether the queue's first message is so far back that it is not in memory any more."""
        first = self._store.entries(topic, queue_id, 0, 1)
        if not first:
            return False
        return self.is_on_disk(first[0][0])

    def is_on_disk(self, position: int) -> bool:
        """Whether a record at this position is so far back."""
        return self._store.commit_log_max_position - position > self._in_memory


def _memory_size() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
