"""Appends: what a store writes of its own: records in the log, their entries in the queues. Never waits.

1. A record is in the log before its entry is in the queue; both are there when append returns.
2. If append raises, nothing was stored.
Owner: MessageStore.
"""

import contextlib
import itertools
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pocketmq.files.layout import ENTRY, ENTRY_SIZE
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import (
    BORN_V6,
    HOST_SIZE,
    HOST_SIZE_V6,
    PROPERTIES_SIZE_MAX,
    STORE_V6,
    V6_EXTRA,
    fixed_struct,
    middle_struct,
)
from pocketmq.store.errors import (
    RecordIllegal,
    RecordTooLarge,
    StoreClosed,
    StoreNotWriteable,
)
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.batch_record import BatchToIndex, RecordFrame, batch_records
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.batch_consume_queue import BatchConsumeQueue
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable
from pocketmq.store.queue.tags_code import parse_delay_levels, schedule_code, tags_code
from pocketmq.store.store_config import StoreConfig

if TYPE_CHECKING:
    from pocketmq.store.following import EntryListener
    from pocketmq.store.log.alike_batch import BatchShape
    from pocketmq.store.log.alike_run import AlikeRecords, AlikeRun

Buffer = bytes | bytearray | memoryview

_PREPARED_OR_ROLLBACK = 0x4
_ROLLBACK = 0xC
# A unit in consumequeue_ext with the bit map of more groups than a topic is meant to have.
_EXT_UNIT_SIZE_MAX = 128
_SIZES = [size.to_bytes(2, "big") for size in range(4096)]


class Appended(NamedTuple):
    """Where a record was stored: position in bytes, queue_offset in entries (0 without an entry)."""

    position: int
    queue_offset: int
    store_ms: int
    size: int


class AppendedBatch(NamedTuple):
    """Where a batch's records were stored; queue_offset is the first one's, the others follow."""

    positions: Sequence[int]
    queue_offset: int
    store_ms: int
    count: int  # type: ignore[assignment]


class AppendedRun(NamedTuple):
    """Where a run's records were stored: the first, the size of each send's, and the queue offset of each."""

    position: int
    size: int
    offsets: list[int]


class AppendedFiles(NamedTuple):
    """The files that an append writes to."""

    log: CommitLog
    table: ConsumeQueueTable
    index_service: IndexService


class Appends:
    """See the head of the file. Attributes: delay_levels (ms), arrivals (the listener for new entries),
    refusal (why nothing is appended now; None if it is).
    """

    def __init__(
        self,
        config: StoreConfig,
        files: AppendedFiles,
        now_ms: Callable[[], int],
        store_host: bytes,
        arrivals: "EntryListener | None",
    ) -> None:
        """store_host: IP bytes and 4-byte port (8 or 20 bytes), as written into every record."""
        self._log, self._table, self._index = files
        self._queues = self._table.queues
        self._body_size_max = config.max_message_size
        self.delay_levels = parse_delay_levels(config.message_delay_level)
        self.arrivals = arrivals
        self.refusal: StoreNotWriteable | None = StoreClosed()
        # Counters for brokerStatus; they only grow.
        self.put_count = 0
        self.put_size = 0
        self.put_slow_count = 0
        self._store_host = store_host
        self._now_ms = now_ms
        self._store_flag = STORE_V6 if len(store_host) == HOST_SIZE_V6 else 0
        self._pack_v4 = fixed_struct(HOST_SIZE, len(store_host)).pack
        self._pack_v6 = fixed_struct(HOST_SIZE_V6, len(store_host)).pack
        self._middle_v4 = middle_struct(HOST_SIZE, len(store_host)).pack
        self._middle_v6 = middle_struct(HOST_SIZE_V6, len(store_host)).pack
        self._pending = self._index.pending

    # ------------------------------------------------------------ append

    def append(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        tags_code: int | None = None,
    ) -> Appended:
        """Store one message: its record in the log, its entry in the queue.

        Args: born_host as IP bytes and port (8 or 20 bytes); tags_code None: from TAGS in properties.
        A half or rolled-back record (sys_flag) gets no entry and queue offset 0. In
        SCHEDULE_TOPIC_XXXX the entry's code is the delivery time by the DELAY property and the clock.
        Raises: StoreNotWriteable (DiskFull, StoreFailed, StoreClosed), RecordIllegal (RecordTooLarge).
        """
        queue = self._queues.get((topic, queue_id)) or self._table.open(topic, queue_id)
        body_size = len(body)
        properties_size = len(properties)
        if body_size > self._body_size_max or properties_size > PROPERTIES_SIZE_MAX:
            raise self._too_large(body_size, properties_size)
        if queue.put_at >= queue.put_end:
            queue.make_room()
        if queue.special:
            self._make_special_room(queue)
        if len(born_host) == HOST_SIZE:
            pack = self._pack_v4
            size = queue.overhead + body_size + properties_size
        else:
            pack = self._pack_v6
            size = queue.overhead + V6_EXTRA + body_size + properties_size
            sys_flag |= BORN_V6
        commit_log = self._log
        at = commit_log.at
        end = at + size
        if end > commit_log.limit:
            self._make_room(size)
            at = commit_log.at
            end = at + size
        store_ms = self._now_ms()
        if store_ms < commit_log.store_ms:
            store_ms = commit_log.store_ms
        has_entry = not sys_flag & _PREPARED_OR_ROLLBACK
        queue_offset = queue.max_offset if has_entry else 0
        position = commit_log.base + at
        try:
            commit_log.map[at:end] = b"".join(
                (
                    pack(
                        size,
                        queue.magic,
                        zlib.crc32(body) & 0x7FFF_FFFF,
                        queue_id,
                        flag,
                        queue_offset,
                        position,
                        sys_flag | self._store_flag,
                        born_ms,
                        born_host,
                        store_ms,
                        self._store_host,
                        reconsume_times,
                        prepared_offset,
                        body_size,
                    ),
                    body,
                    queue.topic_part,
                    _SIZES[properties_size]
                    if properties_size < 4096
                    else properties_size.to_bytes(2, "big"),
                    properties,
                )
            )
        except struct.error as error:
            raise RecordIllegal(f"a field of the message is out of range: {error}") from error
        commit_log.at = end
        commit_log.store_ms = store_ms
        self.put_count += 1
        self.put_size += size
        if has_entry:
            code = _tags_code(properties) if tags_code is None else tags_code
            following = queue_offset + 1
            if queue.special:
                self._put_special(queue, position, size, code, store_ms, properties)
            else:
                ENTRY.pack_into(queue.map, queue.put_at, position, size, code)
                queue.put_at += ENTRY_SIZE
                queue.max_offset = following
                queue.max_position = position + size
            if self.arrivals is not None:
                self.arrivals.arrived(topic, queue_id, following, code, store_ms, properties)
        pending = self._pending
        if not pending:
            self._index.wake()
        if sys_flag & _ROLLBACK != _ROLLBACK:
            pending.append((queue.key_hash, position, store_ms, properties))
        return _new_tuple(Appended, (position, queue_offset, store_ms, size))

    def _make_special_room(self, queue: ConsumeQueue, count: int = 1) -> None:
        """Make room for what _put_special writes besides the entry, before the record is written."""
        if self._table.keeps_ext and not isinstance(queue, BatchConsumeQueue):
            ext = self._table.ext(queue, make=True)
            assert ext is not None
            ext.make_room(count * _EXT_UNIT_SIZE_MAX)

    def _put_special(
        self,
        queue: ConsumeQueue,
        position: int,
        size: int,
        code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """Write the entry of a queue that is not a plain one."""
        if isinstance(queue, BatchConsumeQueue):
            queue.put_batch(position, size, code, store_ms, queue.max_offset, 1)
            return
        if queue.topic == SCHEDULE_TOPIC:
            # Store times do not decrease: after a clock that ran ahead was set right they are no present.
            code = schedule_code(properties, min(store_ms, self._now_ms()), self.delay_levels)
        if self._table.keeps_ext:
            ext = self._table.ext(queue, make=True)
            assert ext is not None
            arrivals = self.arrivals
            bit_map = b"" if arrivals is None else arrivals.bit_map_of(queue.topic, properties)
            code = ext.put(code, store_ms, bit_map)
        queue.put(position, size, code)

    def _make_room(self, size: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.put_slow_count += 1
        self._log.make_room(size)

    def _too_large(self, body_size: int, properties_size: int) -> RecordTooLarge:
        if body_size > self._body_size_max:
            return RecordTooLarge("a body", body_size, self._body_size_max)
        return RecordTooLarge("properties", properties_size, PROPERTIES_SIZE_MAX)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        outer_properties: bytes,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
    ) -> AppendedBatch:
        """Store the messages of a SEND_BATCH_MESSAGE body (wire.md 5.6): all of them or none.

        Each gets `outer_properties` behind its own. The records stand next to each other in one file,
        with one store time and queue offsets that follow each other.
        Raises: as append; RecordIllegal when the batch's lengths do not add up.
        """
        queue = self._queues.get((topic, queue_id)) or self._table.open(topic, queue_id)
        batch_size = len(batch)
        if batch_size > self._body_size_max:
            raise RecordTooLarge("a batch", batch_size, self._body_size_max)
        commit_log = self._log
        store_ms = max(self._now_ms(), commit_log.store_ms)
        sys_flag |= self._store_flag
        overhead = queue.overhead
        if len(born_host) != HOST_SIZE:
            sys_flag |= BORN_V6
            overhead += V6_EXTRA
        try:
            pack = self._middle_v4 if len(born_host) == HOST_SIZE else self._middle_v6
            middle = pack(sys_flag, born_ms, born_host, store_ms, self._store_host, 0, 0)
        except struct.error as error:
            raise RecordIllegal(f"a field of the batch is out of its range: {error}") from error
        frame = _new_tuple(RecordFrame, (queue.magic, queue_id, middle, queue.topic_part, overhead))
        data, alike = bytes(batch), self._index.alike
        while True:
            start = commit_log.at
            position = commit_log.base + start
            first_offset = queue.max_offset
            made = batch_records(data, frame, outer_properties, position, first_offset, alike)
            total = len(made.records)
            count = len(made.positions)
            if queue.special:
                self._make_special_room(queue, count)
            if not isinstance(queue, BatchConsumeQueue):
                queue.make_room_for(count)
            if start + total <= commit_log.limit:
                break
            self._make_room(total)
            if commit_log.base + commit_log.at == position:
                break
            # The batch goes to the next file: its records hold their positions, so they are rebuilt.
        commit_log.map[start : start + total] = made.records
        commit_log.at = start + total
        commit_log.store_ms = store_ms
        if queue.special:
            ends = [*made.positions[1:], position + total]
            for place, (at, end) in enumerate(zip(made.positions, ends, strict=True)):
                properties = made.properties(place)
                self._put_special(queue, at, end - at, made.codes[place], store_ms, properties)
        else:
            queue.put_many(made.entries, position + total)
        self.put_count += count
        self.put_size += total
        self._index.add_batch(_new_tuple(BatchToIndex, (queue.key_hash, made, store_ms)))
        arrivals = self.arrivals
        if arrivals is not None and arrivals.awaited(topic, queue_id):
            arrived = arrivals.arrived
            for place, code in enumerate(made.codes):
                following = first_offset + place + 1
                arrived(topic, queue_id, following, code, store_ms, made.properties(place))
        positions = made.positions
        return _new_tuple(AppendedBatch, (positions, first_offset, store_ms, count))

    @property
    def has_numpy(self) -> bool:
        """Return whether the index has imported numpy: what needs it may be used."""
        return self._index.alike is not None

    def batch_shape(self, data: bytes) -> "BatchShape | None":
        """Return how batches like this one are cut; None if one by one, or no other like it has come yet."""
        alike = self._index.alike
        return None if alike is None else alike.find(data)

    def append_run(
        self, topic: str, run: "AlikeRun", common: "AlikeRecords", born_host: bytes
    ) -> AppendedRun | None:
        """Store sends of one topic as `append` or `append_batch` would, one by one: all of them, or none.

        Returns: None, with nothing done, if they have to be appended one by one. Raises: as append.
        """
        sys_flag = common.sys_flag | self._store_flag
        if len(born_host) != HOST_SIZE or sys_flag & _ROLLBACK:
            return None
        # By queue id: the queue, and which of the sends are its.
        queues: dict[int, tuple[ConsumeQueue, list[int]]] = {}
        offsets: list[int] = []
        messages = run.each
        for place, queue_id in enumerate(run.queue_ids):
            mine = queues.get(queue_id)
            if mine is None:
                found = self._queues.get((topic, queue_id))
                if found is None or found.special:
                    return None
                mine = queues[queue_id] = found, []
            offsets.append(mine[0].max_offset + len(mine[1]) * messages)
            mine[1].append(place)
        queue = next(iter(queues.values()))[0]
        count, size = len(offsets), messages * (queue.overhead + common.own_size)
        if common.sent_size > self._body_size_max:
            return None
        for each, places in queues.values():
            each.make_room_for(len(places) * messages)
        log, total = self._log, count * size
        if log.at + total > log.limit:
            self._make_room(total)
            if log.at + total > log.limit:
                return None
        start, position = log.at, log.base + log.at
        store_ms = max(self._now_ms(), log.store_ms)
        # The times are the records' own.
        middle = self._middle_v4(sys_flag, 0, born_host, 0, self._store_host, 0, 0)
        frame = _new_tuple(RecordFrame, (queue.magic, 0, middle, queue.topic_part, queue.overhead))
        made = common.records(frame, run, offsets, position, store_ms)
        log.map[start : start + total] = made.records
        log.at = start + total
        log.store_ms = store_ms
        self.put_count += count * messages
        self.put_size += total
        entries, width = made.entries, messages * ENTRY_SIZE
        for each, places in queues.values():
            packed = [entries[at * width : (at + 1) * width] for at in places]
            each.put_many(b"".join(packed), position + (places[-1] + 1) * size)
        # Keys and properties are enough for what waits there.
        keyed = made._replace(records=b"", entries=b"")
        self._index.add_batch(_new_tuple(BatchToIndex, (queue.key_hash, keyed, store_ms)))
        arrivals = self.arrivals
        if arrivals is not None:
            for queue_id, (_, places) in queues.items():
                if arrivals.awaited(topic, queue_id):
                    for place, number in itertools.product(places, range(messages)):
                        following, at = offsets[place] + number + 1, place * messages + number
                        code, properties = made.codes[at], made.properties(at)
                        arrivals.arrived(topic, queue_id, following, code, store_ms, properties)
        return _new_tuple(AppendedRun, (position, size, offsets))

    def refuse(self, refusal: StoreNotWriteable | None) -> None:
        """Stop appending with this error, or resume with None."""
        self.refusal = refusal
        # Below zero: the next append comes to _make_room, which raises it.
        self._log.limit = -1 if refusal is not None else 0

    @contextlib.contextmanager
    def of_any_size(self) -> Iterator[None]:
        """Take copies of stored messages: maxMessageSize was for their senders, and may be smaller now."""
        size_max, self._body_size_max = self._body_size_max, sys.maxsize
        try:
            yield
        finally:
            self._body_size_max = size_max


_tags_code = tags_code
# A named tuple without the cost of its own __new__, for every message.
_new_tuple = tuple.__new__
