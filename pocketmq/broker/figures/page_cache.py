"""PageCache: which messages count as still in memory, by their distance from the log's end.

A group without an offset starts at a queue's first message while that is in memory; otherwise the client
decides (consumeFromWhere). Source: checkInDiskByConsumeOffset, RocketMQ 4.9.7.
"""

import os

from pocketmq.store import MessageStore


class PageCache:
    """Stateless; asks the store."""

    def __init__(self, store: MessageStore, memory_size: int | None = None) -> None:
        """memory_size: bytes of the machine's memory; None detects it."""
        self._store = store
        self._memory_size = memory_size or _memory_size()

    def begins_on_disk(self, topic: str, queue_id: int) -> bool:
        """Return True if the queue's first message is too far back to be in memory."""
        first = self._store.entries(topic, queue_id, 0, 1)
        if not first:
            return False
        return self.is_on_disk(first[0][0])

    def is_on_disk(self, position: int) -> bool:
        """Return True if a record at this position is too far back."""
        store = self._store
        in_memory = self._memory_size * store.config.access_message_in_memory_max_ratio // 100
        return store.commit_log_max_position - position > in_memory


def _memory_size() -> int:
    """Return the machine's memory, bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
