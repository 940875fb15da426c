"""The readable part of one queue of a store: from the first record still in the log to the last whole one.

The upper bound is what the ConsumeQueue points to: torn tails, stale bytes behind a truncation, and half
messages have no entry. (A crashed store's log may hold more, see tail_records.py.) The last entry's record is
checked all the same: after a machine crash an index can be newer than its log, and a recovered broker leaves
old entries behind the end until they are overwritten.
"""

from bisect import bisect_left
from collections.abc import Sequence

from pocketmq.bulk.offsets import LossRule, QueueKey
from pocketmq.bulk.queue import Queue
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.layout import FileSpan
from pocketmq.files.queue_files import IndexEntry
from pocketmq.model.record import RECORD_SIZE_MIN, read_record, store_ms_of
from pocketmq.remoting.errors import MessageCodecError

_SAMPLES = 16


class FileBounds:
    """Bounds of a queue, fixed on creation; entry numbers and queue offsets differ in batch queues only."""

    __slots__ = (
        "_times_behind",
        "high",
        "indexed_end",
        "key",
        "last_end",
        "last_position",
        "low",
        "min_offset",
        "queue",
        "span_behind",
        "store",
    )

    def __init__(self, store: StoreSnapshot, queue: Queue, loss: LossRule) -> None:
        self.store = store
        self.queue = queue
        self.key = QueueKey(queue.topic, store.root.broker_name, queue.queue_id)
        self.low, self.high = queue.bounds(store.log_start)
        # First byte and end of the last record in the log.
        self.last_position, self.last_end = -1, 0
        self._skip_torn_tail(loss)
        self.min_offset = queue.offset_at(self.low, self.low, self.high)
        self.indexed_end = queue.offset_at(self.high, self.low, self.high)
        # Behind the index, see tail_records.py: store times in ms; first byte and end in the log.
        self._times_behind: Sequence[int] = ()
        self.span_behind = (0, 0)
        queue.close()

    @property
    def max_offset(self) -> int:
        return self.indexed_end + len(self._times_behind)

    def move_to(self, offset: int) -> None:
        """Set the offset of an empty queue's first message."""
        self.low = self.high = self.min_offset = self.indexed_end = offset

    def add_behind(self, position: int, size: int, ms: int) -> None:
        """Add a message that the index does not point to."""
        first = self.span_behind[0] if self._times_behind else position
        self.span_behind = (first, position + size)
        if not isinstance(self._times_behind, list):
            self._times_behind = []
        self._times_behind.append(ms)

    def _skip_torn_tail(self, loss: LossRule) -> None:
        while self.low < self.high:
            entry = self.queue.entry(self.high - 1)
            found = _look_at(self.store, entry)
            if found == (self.queue.topic, self.queue.queue_id, entry.offset, entry.position):
                self.last_position, self.last_end = entry.position, entry.position + entry.size
                return
            if isinstance(found, str):
                file = self.store.log_file_of(entry.position)
                loss.lost(
                    f"topic {self.key.topic}, broker {self.key.broker_name}, queue "
                    f"{self.key.queue_id}: the record of offset {entry.offset} is not whole: {found}",
                    file.path if file else "commitlog",
                    entry.position,
                )
            # Else another record lies there: the entry is left over from before a truncation.
            self.high -= 1

    def at_time(self, ms: int) -> int | None:
        """Return the first offset whose message was stored at `ms` or later; None if all are older."""
        index = self.index_at_time(ms)
        if index < self.high:
            offset = self.queue.offset_at(index, self.low, self.high)
            self.queue.close()
            return offset
        behind = bisect_left(self._times_behind, ms)
        return self.indexed_end + behind if behind < len(self._times_behind) else None

    def index_at_time(self, ms: int) -> int:
        """Return the first entry whose message was stored at `ms` or later, `high` if all are older.

        Store times grow along the log, so whole files are ruled out by their first record.
        """
        position = _first_file_reaching(self.store, ms)
        low, high = self.low, self.high
        if position is not None:
            high = self.queue.at_position(position, low, high)
        before = _file_before(self.store, position)
        if before is not None:
            low = self.queue.at_position(before.first, low, high)
        while low < high:
            middle = (low + high) // 2
            if store_ms(self.store, self.queue.entry(middle).position) < ms:
                low = middle + 1
            else:
                high = middle
        self.queue.close()
        return low

    def indices(self, start: int, end: int) -> tuple[int, int]:
        """Return the entry numbers that hold the offsets start <= o < end."""
        low = self.queue.at_offset(start, self.low, self.high)
        if self.queue.batch:
            high = self.queue.at_offset(end - 1, low, self.high)
            high = min(high + 1, self.high) if end > start else low
        else:
            high = self.queue.at_offset(end, low, self.high)
        return low, high

    def position_of(self, index: int) -> int:
        """Return where in the log the record of an entry begins."""
        position = self.queue.entry(index).position
        self.queue.close()
        return position

    def segments(self, low: int, high: int, samples: int) -> list[tuple[int, int, float]]:
        """Return where in the log the records of the entries low <= i < high are: (first byte, end, their
        bytes).

        About `samples` segments of equally many records, to estimate their distribution.
        """
        indices = range(low, high, max(1, -(-(high - low) // samples)))
        entries = [self.queue.entry(i) for i in indices]
        last = self.queue.entry(high - 1)
        self.queue.close()
        mean = sum(e.size for e in entries) / len(entries)
        ends = [e.position for e in entries[1:]] + [last.position + last.size]
        counts = [*(indices.step for _ in indices[1:]), high - indices[-1]]
        return [
            (e.position, end, mean * count)
            for e, end, count in zip(entries, ends, counts, strict=True)
        ]

    def mean_size(self) -> int:
        """Return the mean size of a record, bytes, approximate."""
        if self.high <= self.low:
            return 1
        return max(1, self.span(self.low, self.high)[2] // (self.high - self.low))

    def span(self, low: int, high: int) -> tuple[int, int, int]:
        """Return first byte and end in the log of the entries low <= i < high; and about the bytes of their
        records.
        """
        first, last = self.queue.entry(low), self.queue.entry(high - 1)
        count = high - low
        sampled = range(low, high, max(1, count // _SAMPLES))
        mean = sum(self.queue.entry(i).size for i in sampled) / len(sampled)
        self.queue.close()
        return first.position, last.position + last.size, int(mean * count)


def _look_at(store: StoreSnapshot, entry: IndexEntry) -> tuple[str, int, int, int] | str:
    """Return (topic, queue, queue offset, position) of the record there, or why no record can be read."""
    file = store.log_file_of(entry.position)
    if file is None and entry.position >= store.log_end:
        # Perhaps begun since the files were listed.
        store.list_log()
        file = store.log_file_of(entry.position)
    if file is None:
        return "its commit log file is missing"
    at = entry.position - file.first
    if at + entry.size > file.size:
        return "it extends past the end of its file"
    try:
        raw = store.peek(file, at, at + entry.size)
    except FileNotFoundError:
        return "its commit log file is missing"
    try:
        record = read_record(memoryview(raw))
    except MessageCodecError as error:
        return str(error)
    return record.topic, record.queue_id, record.queue_offset, record.position


def store_ms(store: StoreSnapshot, position: int) -> int:
    """Return the store time of the record at a position; 0 if its file was deleted."""
    file = store.log_file_of(position)
    if file is None:
        return 0
    try:
        raw = store.peek(file, position - file.first, position - file.first + RECORD_SIZE_MIN)
    except FileNotFoundError:
        return 0
    if raw.size < RECORD_SIZE_MIN:
        return 0
    return store_ms_of(memoryview(raw))


def _first_file_reaching(store: StoreSnapshot, ms: int) -> int | None:
    """Return the position of the first file whose first record is at `ms` or later; None if absent."""
    low, high = 0, len(store.log_files)
    while low < high:
        middle = (low + high) // 2
        first = store.log_files[middle].first
        # An unused file begins with zeros: it counts as later than anything.
        began = store_ms(store, first)
        if began and began < ms:
            low = middle + 1
        else:
            high = middle
    return store.log_files[low].first if low < len(store.log_files) else None


def _file_before(store: StoreSnapshot, position: int | None) -> FileSpan | None:
    """Return the file before that position; the last file for None."""
    files = [f for f in store.log_files if position is None or f.first < position]
    return files[-1] if files else None
