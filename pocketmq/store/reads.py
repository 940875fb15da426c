"""Reads: the reads of a store: records of a queue, by position, time or key. Never waits.

Returned slices stay valid, even if their file is deleted or the store is closed. Owner: MessageStore.
"""

from array import array
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.files.layout import BLANK_SIZE, ENTRY, ENTRY_SIZE, EXT_ADDRESS_MAX
from pocketmq.files.records import Entry
from pocketmq.model.record import RECORD_SIZE_MIN, Record, read_record, store_ms_of
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.index.record_keys import keys_of
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.message_reader import EntryFilter, MessageReader, ReadResult, ReadStatus
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.reading_limit import ReadingLimit
from pocketmq.store.repair.verification import Verification
from pocketmq.store.store_config import StoreConfig

if TYPE_CHECKING:
    from pocketmq.store.queue.offset_by_time import Boundary

# Entries that one query looks at: messages may have been made to have the hash of its key.
_LOOKED_AT_MAX = 4096
_END_OF_TIME = (1 << 63) - 1


class QueryResult(NamedTuple):
    """Records, and when and up to where the index was last written (0 and 0 if nothing was found)."""

    records: list[memoryview]
    index_last_ms: int
    index_last_position: int


class Backlog(NamedTuple):
    """A group's backlog in a queue: offsets `at` to `end`; store time of the first message, -1: none."""

    at: int
    end: int
    stored_ms: int


class Reads:
    """See the head of the file. Attributes: verification (what is still to be checked of what is read)."""

    def __init__(
        self, config: StoreConfig, log: CommitLog, table: ConsumeQueueTable, index: IndexService
    ) -> None:
        self._config = config
        self._log = log
        self._table = table
        self._queues = table.queues
        self._index = index
        self.verification = Verification(log)
        self._reader = MessageReader(log, self.verification, self._ext_unit)
        # Counters for brokerStatus; they only grow.
        self.get_found_count = 0
        self.get_miss_count = 0
        self.get_transferred_count = 0

    @property
    def limit(self) -> ReadingLimit:
        """Return up to where readers see the log."""
        return self._reader.limit

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        matches: EntryFilter | None = None,
        size_max: int = 262_144,
    ) -> ReadResult:
        """Return records of a queue from `queue_offset` on; never waits.

        Returns: status, next offset, and slices of the mapped log with whole records (disk.md 14).
        """
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        if queue is None:
            self.get_miss_count += 1
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
        result = self._reader.read(queue, queue_offset, count_max, matches, size_max)
        if result.count:
            self.get_found_count += 1
            self.get_transferred_count += result.count
        else:
            self.get_miss_count += 1
            is_beyond = result.status is ReadStatus.OFFSET_OVERFLOW_BADLY
            if is_beyond and self._table.deleted.had(topic, queue_id):
                # The reader was in the queue that had the name before: all of this one is still to be read.
                return result._replace(next_offset=result.min_offset)
        return result

    def record_at(self, position: int, size: int = 1) -> memoryview | None:
        """Return the whole record that begins at `position`, checked; None if absent.

        size: that of the queue entry which named the position. One that stands for a lost message names the
        log's first record, whatever that is.
        """
        found = self._log.entry_at(position) if position >= 0 < size < BLANK_SIZE else None
        if not isinstance(found, Entry):
            return None
        return self._log.slice(position, found.size)

    def message_at(self, position: int) -> memoryview | None:
        """Return the record at a position that came from outside; None if none begins there.

        PocketMQ only: RocketMQ accepts all that looks like a record, even inside the body of a forged
        message. Here the queue entry of the record must point back at it.
        """
        data = self.record_at(position)
        if data is None:
            return None
        record = read_record(data, check_crc=False)
        if self.limit.hides(record.topic, position, len(data)):
            return None
        queue = self._table.get(record.topic, record.queue_id)
        entry = None if queue is None else queue.entry(record.queue_offset)
        points_back = entry is not None and entry[0] == position and entry[1] != BLANK_SIZE
        return data if points_back else None

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (position, size, tags code) of the queue's entries from `queue_offset` on, as stored."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        found: list[tuple[int, int, int]] = []
        if queue is not None:
            count = min(count, max(0, self.limit.end_of(queue) - queue_offset))
        while queue is not None and len(found) < count:
            piece = queue.entries(queue_offset + len(found), count - len(found))
            if piece is None:
                break
            found.extend(ENTRY.iter_unpack(piece))
        return found

    def is_queued(self, record: Record) -> bool:
        """Return True if the entry of its queue points at a record: not if its topic was deleted since."""
        queue = self._table.get(record.topic, record.queue_id)
        entry = None if queue is None else queue.entry(record.queue_offset)
        return entry is not None and entry[0] == record.position and entry[1] != BLANK_SIZE

    def positions_since(
        self, topic: str, queue_id: int, since_ms: int, count_max: int
    ) -> "array[int]":
        """Return the log positions of a queue's newest messages, those that no reader may see yet included.

        since_ms: their least store time; count_max: how many at most.
        """
        found = array("q")
        queue = self._table.get(topic, queue_id)
        if queue is None:
            return found
        at = self.offset_by_time(topic, queue_id, since_ms, "LOWER")
        at = max(at, queue.max_offset - count_max)
        while (piece := queue.entries(at, count_max)) is not None:
            found.extend(
                place for place, size, _ in ENTRY.iter_unpack(piece) if size >= RECORD_SIZE_MIN
            )
            at += len(piece) // ENTRY_SIZE
        return found

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first readable offset; 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset(self._log.min_position)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that may be read; 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        return 0 if queue is None else self.limit.end_of(queue)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset to be assigned; 0 for a queue that does not exist."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def is_open(self, topic: str, queue_id: int) -> bool:
        """Return True if reading the queue is cheap."""
        return (topic, queue_id) in self._queues

    @property
    def closings(self) -> int:
        """A counter: while it is unchanged, a closed queue has not changed."""
        return self._table.closings

    def backlog(self, topic: str, queue_id: int, offset: int) -> Backlog:
        """Return the backlog of a group at `offset`, without keeping the queue open. No queue: nothing."""
        queue = self._table.look(topic, queue_id)
        if queue is None:
            return Backlog(0, 0, -1)
        end = self.limit.end_of(queue)
        at = min(max(offset, queue.min_offset(self._log.min_position)), end)
        return Backlog(at, end, self._store_ms(queue, at) if at < end else -1)

    def queues(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of one topic's."""
        return self._table.names([topic] if topic else self._table.topics())

    def open_queues(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of the queues that are open: of those used lately at least."""
        return list(self._queues)

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time in ms of the record at an offset; -1 if absent."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        if queue is None:
            return -1
        return self._store_ms(queue, queue_offset)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Return the store time in ms of the first readable record; -1 if absent."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        if queue is None:
            return -1
        return self._store_ms(queue, queue.min_offset(self._log.min_position))

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: "Boundary" = "NEAREST"
    ) -> int:
        """Return the offset for a store time (offset_by_time.py); 0 without such a queue."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        if queue is None:
            return 0
        # A start is quicker without it.
        from pocketmq.store.queue.offset_by_time import offset_by_time

        found = offset_by_time(
            queue,
            queue.min_offset(self._log.min_position),
            time_ms,
            boundary,
            lambda offset: self._store_ms(queue, offset),
        )
        return min(found, self.limit.end_of(queue))

    def _store_ms(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset) if offset >= 0 else None
        if entry is None or entry[1] == BLANK_SIZE or entry[0] < self._log.min_position:
            return -1
        if entry[1] < RECORD_SIZE_MIN:
            return -1
        record = self._log.slice(entry[0], RECORD_SIZE_MIN)
        return -1 if record is None else store_ms_of(record)

    def _ext_unit(self, queue: ConsumeQueue, code: int) -> ExtUnit | None:
        ext = self._table.ext(queue)
        return None if ext is None else ext.get(code)

    def ext_unit(self, topic: str, queue_id: int, code: int) -> ExtUnit | None:
        """Return the unit that an entry's code addresses in consumequeue_ext."""
        queue = self._queues.get((topic, queue_id)) or self._table.get(topic, queue_id)
        ext = self._table.ext(queue) if queue is not None and code <= EXT_ADDRESS_MAX else None
        return None if ext is None else ext.get(code)

    def query_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return the newest records that have the key, by position; the store times are inclusive.

        Where there is room, records of other topics and keys with the same hash follow, as in RocketMQ, whose
        clients leave them out. PocketMQ only: they take no place of a record that has the key.
        """
        raw = key.encode("utf-8", "surrogatepass")
        count_max = min(count_max, self._config.max_msgs_num_batch)
        found: dict[int, memoryview] = {}
        others: dict[int, memoryview] = {}
        positions = self._index.positions(topic, key, begin_ms, end_ms)
        for position in islice(positions, _LOOKED_AT_MAX):
            if len(found) >= count_max:
                break
            if position in found or position in others:
                continue
            record = self.record_at(position)
            if record is None or self.limit.hides(topic, position, len(record)):
                continue
            if begin_ms <= store_ms_of(record) <= end_ms and not self._has_expired(record):
                (found if self._names(record, topic, raw) else others)[position] = record
        for position in islice(others, max(0, count_max - len(found))):
            found[position] = others[position]
        if not found:
            return QueryResult([], 0, 0)
        newest = self._index.files[-1]
        return QueryResult(
            [found[each] for each in sorted(found)], newest.end_ms, newest.end_position
        )

    def _has_expired(self, data: memoryview) -> bool:
        """Return True for a record whose topic keeps less than the log (topic_retention.py)."""
        record = read_record(data, check_crc=False)
        queue = self._table.get(record.topic, record.queue_id)
        return queue is not None and record.queue_offset < queue.floor

    def _names(self, data: memoryview, topic: str, key: bytes) -> bool:
        record = read_record(data, check_crc=False)
        tags = self._config.message_index_tags
        return record.topic == topic and key in keys_of(record.properties, tags=tags)

    def records_of_key(self, topic: str, key: bytes, after: int) -> Iterator[Record]:
        """Yield the records at or behind position `after` that have the key, newest first."""
        text = key.decode("utf-8", "replace")
        positions = self._index.positions(topic, text, 0, _END_OF_TIME)
        for position in islice(positions, _LOOKED_AT_MAX):
            if position < after:
                return
            data = self.record_at(position)
            if data is not None and self._names(data, topic, key):
                yield read_record(data, check_crc=False)
