"""Following: the log of a slave, which is its master's byte for byte.

    | whole records, with their entries | bytes of incomplete records |
    min_position                      end                      received

1. Bytes arrive in the order of the log, cut anywhere, and are written at their positions: `received` is where
   the next one goes, and what a slave reports. The bytes behind the blank at a file's end are part of it.
2. `step` processes whole records that have arrived: entry, index, waiters. Only then does the log's end move,
   so no reader sees half a record. One step is bounded: catching up never blocks the loop.
3. Anything but a record stops it for good (Diverged): nothing is skipped, since every byte of a master's log
   that belongs to no record is one that the two do not share.
4. A queue whose offsets start over was deleted at the master, and is deleted here.
5. While a store follows it appends nothing of its own (StoreFollows).
6. Plain records, nearly all of them, are processed many at once (_take_plain); special or bad ones are
   processed one by one.
Owner: MessageStore, on the event loop. Source: DefaultMessageStore.appendToCommitLog, ReputMessageService,
RocketMQ 4.9.7.
"""

import logging
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

from pocketmq.files.layout import ENTRY, ENTRY_SIZE
from pocketmq.files.records import Entry, check_record
from pocketmq.model.record import (
    BORN_V6,
    FIXED_V4,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    STORE_V6,
)
from pocketmq.store.errors import Diverged, RecordIllegal
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.commit_log import BLANK, CommitLog
from pocketmq.store.queue.batch_consume_queue import BatchConsumeQueue, messages_in
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.tags_code import entry_code, tags_code

log = logging.getLogger(__name__)

# What one step costs at most, in plain records, and its bytes but for the last record: some milliseconds.
STEP = 256
STEP_SIZE = 1 << 20
# A record that is processed alone; the first of a queue, which makes files.
_ALONE = 4
_FIRST = 32
_PREPARED_OR_ROLLBACK = 0x4
_ROLLBACK = 0xC
_NOT_PLAIN = _ROLLBACK | BORN_V6 | STORE_V6
# size, magic, CRC, queue id, queue offset, position, flags, store ms, body size of a plain record (FIXED_V4).
_PLAIN = struct.Struct(">iiii4xqqi16xq20xi")
assert _PLAIN.size == FIXED_V4.size


class EntryListener(Protocol):
    """The listener for new entries, which also computes the content of queues' extensions."""

    @property
    def arrived(self) -> Callable[[str, int, int, int, int, bytes], None]:
        """(topic, queue id, offset behind the entry, tags code, store ms, properties): handle a new entry."""

    @property
    def awaited(self) -> Callable[[str, int], object]:
        """(topic, queue id) -> whether `arrived` has anything to do; asked once per batch."""

    @property
    def bit_map_of(self) -> Callable[[str, bytes], bytes]:
        """With enableConsumeQueueExt: (topic, properties) -> filter bit map of the topic's groups."""


class Following:
    """Receives and processes what a master sends."""

    def __init__(
        self,
        commit_log: CommitLog,
        table: ConsumeQueueTable,
        index: IndexService,
        delay_levels: Sequence[int],
        arrivals: EntryListener | None,
    ) -> None:
        self._log = commit_log
        self.table = table
        self.index = index
        self._levels = delay_levels
        self._arrivals = arrivals
        self._topics: dict[bytes, str] = {}
        self.received = commit_log.end
        # Why it takes nothing any more (invariant 3).
        self.diverged: Diverged | None = None

    @property
    def behind(self) -> int:
        """Return the bytes that have arrived and are not processed yet."""
        return self.received - self._log.end

    def begin_at(self, position: int) -> None:
        """Begin an empty log here: at the first byte of one of the master's files, or 0."""
        assert not self._log.files.files
        self._log.open_at(position)
        self.received = position

    def receive(self, data: bytes | memoryview) -> None:
        """Write the log's next bytes (invariant 1).

        Raises: DiskFull, StoreUnreadable; then they count as not received.
        """
        self._log.write_raw(self.received, data)
        self.received += len(data)

    def step(self, records_max: int = STEP) -> bool:
        """Process some of what has arrived. Returns: whether there may be more. Raises: Diverged.

        records_max: plain records; others count for several of them.
        """
        if self.diverged is not None:
            raise self.diverged
        commit_log = self._log
        until = commit_log.end + STEP_SIZE
        while records_max > 0 and commit_log.end < until:
            records_max -= self._take_plain(records_max, until)
            if records_max <= 0 or commit_log.end >= until:
                break
            record = self._next()
            if record is None:
                return False
            records_max -= self._put(record)
            commit_log.move_end(record.position + record.size, record.store_ms)
        return True

    def continue_queue(self, topic: str, queue_id: int, offset: int) -> bool:
        """Have a queue without records begin at `offset`, kept over restarts; False if it has begun.

        Raises: DiskFull.
        """
        queue = self.table.open(topic, queue_id)
        if queue.files.files or isinstance(queue, BatchConsumeQueue) or queue.refusal_of(offset):
            return False
        queue.skip_to(offset)
        queue.make_room()
        return True

    def drop_rest(self) -> None:
        """Drop the incomplete record: the log ends behind the last whole one."""
        if self.received != self._log.end:
            self._log.open_at(self._log.end)
            self._log.limit = -1
            self.received = self._log.end

    # ------------------------------------------------------------ records

    def _take_plain(self, records_max: int, until: int) -> int:
        """Process plain records of one file, up to the first other one (6). Returns: how many."""
        commit_log = self._log
        position = commit_log.end
        file = commit_log.files.file_at(position)
        if file is None:
            return 0
        view, data, start = file.view, file.map, file.start
        at, there = position - start, min(self.received, file.end, until) - start
        topics, queues, pending = self._topics, self.table.queues, self.index.pending
        unpack, crc32, pack_into = _PLAIN.unpack_from, zlib.crc32, ENTRY.pack_into
        body_offset = _PLAIN.size
        latest_ms = done = 0
        # No puller can begin to wait for a queue during this loop.
        quiet: set[ConsumeQueue] = set()
        was_indexed = not pending
        try:
            while done < records_max and there - at >= RECORD_SIZE_MIN:
                size, magic, crc, queue_id, offset, own, flag, store_ms, body_size = unpack(
                    data, at
                )
                end, body_end = at + size, at + body_offset + body_size
                if (
                    magic != MAGIC_V1
                    or flag & _NOT_PLAIN
                    or own != start + at
                    or end > there
                    or not 0 <= body_size <= size - RECORD_SIZE_MIN
                    or crc32(view[at + body_offset : body_end]) & 0x7FFF_FFFF != crc
                ):
                    break
                topic_end = body_end + 1 + data[body_end]
                if topic_end + 2 > end:
                    break
                properties = data[topic_end + 2 : end]
                if len(properties) != data[topic_end] << 8 | data[topic_end + 1]:
                    break
                queue = queues.get((topics.get(data[body_end + 1 : topic_end], ""), queue_id))
                if queue is None or queue.special or offset != queue.max_offset:
                    break
                put_at = queue.put_at
                if put_at >= queue.put_end:
                    break
                # `in` takes the name for a number first, which costs ten times as much.
                code = tags_code(properties) if properties.find(b"TAGS") >= 0 else 0
                pack_into(queue.map, put_at, own, size, code)
                queue.put_at = put_at + ENTRY_SIZE
                queue.max_offset = offset + 1
                queue.max_position = own + size
                pending.append((queue.key_hash, own, store_ms, properties))
                at = end
                done += 1
                if store_ms > latest_ms:
                    latest_ms = store_ms
                if queue not in quiet and not self._told(queue, code, store_ms, properties):
                    quiet.add(queue)
        finally:
            if done:
                commit_log.move_end(start + at, latest_ms)
                if was_indexed:
                    self.index.wake()
        return done

    def _told(self, queue: ConsumeQueue, code: int, store_ms: int, properties: bytes) -> bool:
        """Notify the waiters of the queue of its new, last entry. Returns: whether there are any."""
        arrivals, topic, queue_id = self._arrivals, queue.topic, queue.queue_id
        if arrivals is None or not arrivals.awaited(topic, queue_id):
            return False
        arrivals.arrived(topic, queue_id, queue.max_offset, code, store_ms, properties)
        return True

    def _next(self) -> Entry | None:
        """Return the next whole record; None: it has not arrived yet. Raises: Diverged."""
        commit_log = self._log
        while True:
            position = commit_log.end
            file = commit_log.files.file_at(position)
            if file is None:
                return None
            at = position - file.start
            left = file.size - at
            there = min(self.received, file.end) - position
            if left >= BLANK.size:
                if there < BLANK.size:
                    return None
                size, magic = BLANK.unpack_from(file.view, at)
                if magic != MAGIC_BLANK:
                    is_record = magic in (MAGIC_V1, MAGIC_V2) and RECORD_SIZE_MIN <= size <= left
                    if is_record and there < size:
                        return None
                    found = check_record(file.view, at, file.size, position)
                    if isinstance(found, Entry):
                        return found
                    raise self._stop(position, found or "zeros where a record should be")
            if self.received < file.end:
                return None
            commit_log.move_end(file.end, commit_log.store_ms)

    def _put(self, record: Entry) -> int:
        """Write the record's entry and notify the listeners. Returns: its cost. Raises: Diverged."""
        sys_flag, cost = record.sys_flag, _ALONE
        if not sys_flag & _PREPARED_OR_ROLLBACK:
            topic = self._topics.get(record.topic)
            if topic is None:
                topic = record.topic.decode("utf-8", "surrogateescape")
                self._topics[record.topic] = topic
            cost = self._cost(topic, record)
            try:
                queue = self._queue(topic, record)
            except RecordIllegal as error:
                raise self._stop(record.position, str(error)) from error
            code = entry_code(topic, record.properties, record.store_ms, self._levels)
            self._put_entry(queue, record, code)
            if self._arrivals is not None:
                self._arrivals.arrived(
                    topic,
                    record.queue_id,
                    queue.max_offset,
                    code,
                    record.store_ms,
                    record.properties,
                )
        if sys_flag & _ROLLBACK != _ROLLBACK:
            if not self.index.pending:
                self.index.wake()
            self.index.pending.append(self.index.note(record))
        return cost

    def _stop(self, position: int, why: str) -> Diverged:
        """Apply invariant 3."""
        self.diverged = Diverged(position, why)
        return self.diverged

    def _cost(self, topic: str, record: Entry) -> int:
        """Return the cost of `_queue`: a queue with a gap or an overlap fills or deletes files."""
        queue = self.table.queues.get((topic, record.queue_id))
        if record.queue_offset != (0 if queue is None else queue.max_offset):
            return STEP
        return _FIRST if queue is None else _ALONE

    def _queue(self, topic: str, record: Entry) -> ConsumeQueue:
        """Return the record's queue, positioned where its entry goes."""
        queue = self.table.open(topic, record.queue_id)
        offset = record.queue_offset
        why = queue.refusal_of(offset)
        if why:
            raise RecordIllegal(why)
        if offset < queue.max_offset:
            log.warning(
                "a queue restarts at the master, so it does here topic=%s queue=%d offset=%d end=%d",
                topic,
                record.queue_id,
                offset,
                queue.max_offset,
            )
            self.table.remove([queue])
            queue = self.table.open(topic, record.queue_id)
        queue.skip_to(offset)
        return queue

    def _put_entry(self, queue: ConsumeQueue, record: Entry, code: int) -> None:
        if isinstance(queue, BatchConsumeQueue):
            messages = messages_in(record.sys_flag, record.properties)
            queue.put_batch(
                record.position, record.size, code, record.store_ms, record.queue_offset, messages
            )
            return
        if self.table.keeps_ext:
            ext = self.table.ext(queue, make=True)
            assert ext is not None
            arrivals = self._arrivals
            bit_map = (
                b"" if arrivals is None else arrivals.bit_map_of(queue.topic, record.properties)
            )
            code = ext.put(code, record.store_ms, bit_map)
        queue.put(record.position, record.size, code)
