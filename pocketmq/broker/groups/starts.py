"""Starts: where a group began to read a queue that it had no offset of; for slaves that are behind.

A group's offset is ahead of what it still has in hand or has sent back, and a slave whose log lacks the trace
of these would pass over them. From its start on it misses nothing. Kept for KEPT_MS, the last STARTS_MAX;
in memory, since after a restart the slave's copy is older than that. Owner: the broker.
"""

from pocketmq.remoting.clock import Clock

# Between topic and group, in the table of offsets.
SEPARATOR = "@"

KEPT_MS = 3_600_000
STARTS_MAX = 10_000


class Starts:
    """The first offsets, the oldest first.

    >>> from pocketmq.remoting.clock import SystemClock
    >>> starts = Starts(SystemClock(), starts_max=2)
    >>> for queue_id, offset in ((0, 5), (1, 7), (0, 3), (2, 9)):
    ...     starts.note("g", "T", queue_id, offset)
    >>> starts.to_json()
    {'T@g': {0: 3, 2: 9}}
    """

    def __init__(self, clock: Clock, *, starts_max: int = STARTS_MAX) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self._starts_max = starts_max
        # By (group, topic, queue id): the offset, and when it was noted.
        self._table: dict[tuple[str, str, int], tuple[int, int]] = {}

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that a group without an offset reads from this one; of several the lowest counts."""
        key = (group, topic, queue_id)
        lowest = min(offset, self._table.pop(key, (offset, 0))[0])
        self._table[key] = lowest, self._monotonic_ms()
        if len(self._table) > self._starts_max:
            del self._table[next(iter(self._table))]

    def of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the first offset; None if unknown."""
        found = self._table.get((group, topic, queue_id))
        return None if found is None else found[0]

    def to_json(self) -> dict[str, dict[int, int]]:
        """Return them as a table of offsets."""
        oldest_ms = self._monotonic_ms() - KEPT_MS
        found: dict[str, dict[int, int]] = {}
        for (group, topic, queue_id), (offset, noted_ms) in list(self._table.items()):
            if noted_ms < oldest_ms:
                del self._table[group, topic, queue_id]
            else:
                found.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
        return found
