"""TopicRetention: messages of a topic that are beyond what its attributes reserve. PocketMQ only.

    reserve.time    how long: hours, or with a unit (90s, 30m, 12h, 7d)     by the store time
    reserve.count   how many messages                                      in each queue
    reserve.size    how many bytes of records                              in each queue

1. What is beyond any of them is expired: its queue entries become blanks, which stand for no record, and
   whole queue files go. So each reader of the files agrees, a broker of RocketMQ too, and a restart.
2. The records stay in the shared log until its file is deleted: by fileReservedTime, or sooner if no queue
   has an entry in the file's bytes any more (`is_unneeded`; not with more than QUEUES_MAX queues).
3. A rebuilt index shows them again until the next tick, as long as the log has them.
4. Sizes are summed up once for each queue; then each entry is added and taken away once.
Owner: the broker's housekeeping, on the event loop. A slave expires by its own tick, by its master's topics.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pocketmq.files.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store.queue.batch_consume_queue import BatchConsumeQueue
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.reads import Reads

TIME, SIZE, COUNT = "reserve.time", "reserve.size", "reserve.count"
ATTRIBUTES = (TIME, SIZE, COUNT)
QUEUES_MAX = 2_000
_UNITS_MS = {"": 3_600_000, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(r"([1-9][0-9]{0,17})(ms|[smhd]?)")
# Entries that one tick adds up of a queue.
_SUMMED_MAX = 200_000
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a topic keeps; None: no bound."""

    time_ms: int | None = None
    size: int | None = None
    count: int | None = None

    @classmethod
    def parse(cls, attributes: Mapping[str, str]) -> "Reserved | None":
        """Return what attributes say; None if nothing. Raises: IllegalArgument.

        >>> Reserved.parse({"reserve.time": "2", "reserve.count": "10"})
        Reserved(time_ms=7200000, size=None, count=10)
        """
        found = [
            _value(name, attributes[name]) if name in attributes else None for name in ATTRIBUTES
        ]
        return None if found == [None] * len(found) else cls(*found)


def _value(name: str, text: str) -> int | None:
    if text == "-1":
        # RocketMQ's word for no bound of its own.
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or (match[2] and name != TIME):
        wanted = "hours, or a number with s, m, h or d" if name == TIME else "a number"
        raise IllegalArgument(f"{name}={text} is not {wanted}, above 0; -1 is no bound")
    return int(match[1]) * (_UNITS_MS[match[2]] if name == TIME else 1)


@dataclass(slots=True)
class _Sum:
    """Bytes of the records in [begin, end) of a queue."""

    begin: int
    end: int
    size: int = 0


class TopicRetention:
    """See the head of the file."""

    def __init__(
        self, table: ConsumeQueueTable, reads: Reads, log_begins: Callable[[], int], clock: Clock
    ) -> None:
        """log_begins: where the log begins now."""
        self._table = table
        self._reads = reads
        self._log_begins = log_begins
        self._clock = clock
        self._sums: dict[Key, _Sum] = {}
        self._reserved: dict[str, Reserved] = {}

    def keep(self, reserved: dict[str, Reserved]) -> None:
        """Set the topics that keep less than the log."""
        self._reserved = reserved
        self._sums = {key: each for key, each in self._sums.items() if key[0] in reserved}

    def tick(self) -> int:
        """Expire what is beyond; called about once a second. Returns: how many messages."""
        count = 0
        for topic, reserved in self._reserved.items():
            for queue in self._table.of_topic(topic):
                if not isinstance(queue, BatchConsumeQueue):
                    count += queue.expire_before(self._floor(queue, reserved), self._log_begins())
        return count

    def _floor(self, queue: ConsumeQueue, reserved: Reserved) -> int:
        """Return the first offset that a queue keeps."""
        low, end = queue.min_offset(self._log_begins()), self._reads.limit.end_of(queue)
        floor = low
        if reserved.count is not None:
            floor = max(floor, end - reserved.count)
        if reserved.time_ms is not None and low < end:
            since_ms = self._clock.now_ms() - reserved.time_ms
            first = self._reads.offset_by_time(queue.topic, queue.queue_id, since_ms, "LOWER")
            floor = max(floor, first)
        if reserved.size is not None:
            floor = max(floor, self._floor_by_size(queue, low, end, reserved.size))
        return min(floor, end)

    def _floor_by_size(self, queue: ConsumeQueue, low: int, end: int, size: int) -> int:
        key = queue.topic, queue.queue_id
        held = self._sums.get(key)
        if held is None or not held.begin <= low <= held.end:
            held = self._sums[key] = _Sum(low, low)
        held.size -= self._size_of(queue, held.begin, low)
        held.begin = low
        until = min(end, held.end + _SUMMED_MAX)
        held.size += self._size_of(queue, held.end, until)
        held.end = until
        floor = low
        while held.size > size and floor < held.end:
            held.size -= self._size_of(queue, floor, floor + 1)
            floor += 1
        held.begin = floor
        return floor

    def _size_of(self, queue: ConsumeQueue, begin: int, end: int) -> int:
        """Return the bytes of the records of some entries; of blanks none."""
        total = 0
        while begin < end:
            piece = queue.entries(begin, end - begin)
            if piece is None:
                break
            total += sum(each[1] for each in ENTRY.iter_unpack(piece) if each[1] != BLANK_SIZE)
            begin += len(piece) // ENTRY_SIZE
        return total

    def is_unneeded(self, log_position: int) -> bool:
        """Return True if no queue has an entry for what is in the log before a position (invariant 2).

        Without topics that keep less than the log there is nothing to ask.
        """
        if not self._reserved:
            return False
        names = self._table.names(self._table.topics())
        return len(names) <= QUEUES_MAX and not any(
            self._needs(*name, log_position) for name in names
        )

    def _needs(self, topic: str, queue_id: int, log_position: int) -> bool:
        queue = self._table.look(topic, queue_id)
        if queue is None:
            return False
        first = queue.entry(queue.min_offset(self._log_begins()))
        return first is not None and first[1] != BLANK_SIZE and first[0] < log_position
