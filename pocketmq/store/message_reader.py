"""Reading one queue: statuses, next offsets, filters. Source: DefaultMessageStore.getMessage; disk.md 14.

1. A read returns slices of the mapped log; adjacent records form one slice. Small records that are apart are
   copied together: a slice for each costs more.
2. The first record is included whatever its size; then count_max and size_max bound the result.
3. A scan stays in one queue file and looks at no more than SCAN_MAX entries, or RECORD_SCAN_MAX records
   (fewer if the filter says so); next_offset says where it stopped, so a filter that passes few messages
   costs more calls, not long ones.
4. Records that this process neither wrote nor checked at its start are checked on their first read
   (verification.py): a damaged one is skipped, never served.
"""

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from pocketmq.files.layout import ENTRY, ENTRY_SIZE, EXT_ADDRESS_MAX
from pocketmq.model.record import properties_of, sys_flag_of
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.batch_consume_queue import INNER_BATCH, BatchConsumeQueue
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.tags_code import tags_code
from pocketmq.store.reading_limit import ReadingLimit
from pocketmq.store.repair.verification import Verification

SCAN_MAX = 65_536
# With a second look at each record, which costs a hundred times as much as one at an entry: 10 ms.
RECORD_SCAN_MAX = 2_048
# Shorter scans are as fast without numpy.
_VECTOR_MIN = 256
# More codes than that are looked up all at once, by sorting.
_CODES_ONE_BY_ONE_MAX = 32


# Entries that are read by one call at most.
_AT_ONCE_MAX = 256
# Bytes of a copy at most.
_COPY_MAX = 65_536


class ReadStatus(StrEnum):
    """How a read ended; the text is the remark of a pull's answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(NamedTuple):
    """buffers: whole records, read-only; size is their sum in bytes, count their records."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[bytes | memoryview]
    count: int  # type: ignore[assignment]
    size: int


class EntryFilter(Protocol):
    """What a subscription lets through."""

    @property
    def codes(self) -> frozenset[int] | None:
        """Return the tags codes that pass; None: all pass."""
        ...

    @property
    def record(self) -> Callable[[memoryview], bool] | None:
        """Return a second check, on the whole record; None: none is needed."""
        ...


class MessageReader:
    """Reads queues of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        verification: Verification,
        unit_of: Callable[[ConsumeQueue, int], ExtUnit | None],
    ) -> None:
        self._log = commit_log
        self.limit = ReadingLimit()
        self._verification = verification
        # What is behind an address in consumequeue_ext.
        self._unit_of = unit_of

    def read(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        matches: EntryFilter | None,
        size_max: int,
    ) -> ReadResult:
        """See MessageStore.read."""
        max_offset = self.limit.end_of(queue) if self.limit.is_set else queue.max_offset
        log_min = self._log.min_position
        min_offset = queue.min_offset(log_min)
        if offset < min_offset or offset >= max_offset:
            return _outside(offset, min_offset, max_offset, queue.max_offset)
        if isinstance(queue, BatchConsumeQueue):
            return self._read_batches(
                queue, offset, count_max, matches, size_max, min_offset, max_offset
            )
        if matches is not None and (matches.codes is not None or matches.record is not None):
            return self._read_filtered(
                queue, offset, count_max, matches, size_max, min_offset, max_offset
            )
        entries = queue.entries(offset, min(count_max, max_offset - offset))
        if entries is None:
            status, following = ReadStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset)
            return ReadResult(status, following, min_offset, max_offset, [], 0, 0)
        status = ReadStatus.NO_MATCHED_MESSAGE
        # Records that were deleted from the log meanwhile are missing, even if verified before.
        trusted = max(self._verification.trusted_from, log_min)
        count = len(entries) // ENTRY_SIZE
        buffers, total = self._at_once(entries, count, trusted, size_max)
        if total:
            status, following = ReadStatus.FOUND, offset + count
            return ReadResult(status, following, min_offset, max_offset, buffers, count, total)
        count = scanned = 0
        run_start = run_end = -1
        skip_until = -1
        for position, size, _ in ENTRY.iter_unpack(entries):
            if position < trusted:
                if position < skip_until:
                    scanned += 1
                    continue
                found = self._verification.entry(queue, offset + scanned, position, size)
                if found is None:
                    if position < log_min:
                        if not count:
                            status = ReadStatus.MESSAGE_WAS_REMOVING
                        skip_until = self._log.next_file_position(position)
                    scanned += 1
                    continue
                position, size = found
            if count and total + size > size_max:
                break
            if position == run_end:
                run_end += size
            else:
                if run_end >= 0:
                    self._add(buffers, run_start, run_end)
                run_start, run_end = position, position + size
            total += size
            count += 1
            scanned += 1
        if count:
            self._add(buffers, run_start, run_end)
            status = ReadStatus.FOUND
        return ReadResult(status, offset + scanned, min_offset, max_offset, buffers, count, total)

    def _at_once(
        self, entries: memoryview, count: int, trusted: int, size_max: int
    ) -> tuple[list[bytes | memoryview], int]:
        """Return the records of these entries and their size; 0 if each entry has to be checked.

        That is if they are not all in one file, do not all pass, or are not yet known to be good.
        """
        if count > _AT_ONCE_MAX:
            return [], 0
        unpack = _unpacks[count]
        if unpack is None:
            unpack = _unpacks[count] = struct.Struct(">" + "qi8x" * count).unpack
        fields = unpack(entries)
        positions, sizes = fields[::2], fields[1::2]
        total: int = sum(sizes)
        # Positions grow along a queue.
        first, end = positions[0], positions[-1] + sizes[-1]
        log = self._log
        file = log.files.file_at(first)
        if first < trusted or total > size_max or file is None or end > log.end or end > file.end:
            return [], 0
        start = file.start
        if end - first == total:
            return [file.view[first - start : end - start]], total
        if start:
            positions = tuple([position - start for position in positions])
        pairs = zip(positions, sizes, strict=True)
        if total > _COPY_MAX:
            view = file.view
            buffers: list[bytes | memoryview] = [view[at : at + size] for at, size in pairs]
        else:
            data = file.map
            buffers = [b"".join([data[at : at + size] for at, size in pairs])]
        return buffers, total if sum(map(len, buffers)) == total else 0

    def _add(self, buffers: list[bytes | memoryview], start: int, end: int) -> None:
        found = self._log.slice(start, end - start)
        if found is None:
            raise AssertionError(
                f"an entry points to bytes {start}..{end}, which the log does not have"
            )
        buffers.append(found)

    def _read_filtered(
        self,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        matches: EntryFilter,
        size_max: int,
        min_offset: int,
        max_offset: int,
    ) -> ReadResult:
        codes, accepts = matches.codes, matches.record
        may_pass: Callable[[ExtUnit], bool] | None = getattr(matches, "unit", None)
        trusted = max(self._verification.trusted_from, self._log.min_position)
        status = ReadStatus.NO_MATCHED_MESSAGE
        buffers: list[bytes | memoryview] = []
        total = count = 0
        at = offset
        looks = SCAN_MAX if accepts is None else getattr(matches, "scan_max", RECORD_SCAN_MAX)
        scan_end = offset + looks
        piece = _VECTOR_MIN
        while at < scan_end and count < count_max:
            entries = queue.entries(at, min(piece, scan_end - at, max_offset - at))
            if entries is None:
                if at == offset:
                    status, at = ReadStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset)
                break
            full = False
            for place in _matching(entries, codes):
                position, size, code = ENTRY.unpack_from(entries, place * ENTRY_SIZE)
                if codes is None:
                    if may_pass is not None and code <= EXT_ADDRESS_MAX:
                        unit = self._unit_of(queue, code)
                        if unit is not None and not may_pass(unit):
                            continue
                elif code not in codes:
                    if code > EXT_ADDRESS_MAX:
                        continue
                    if self._code_behind(queue, code, position, size) not in codes:
                        continue
                if position < trusted:
                    found = self._verification.entry(queue, at + place, position, size)
                    if found is None:
                        if position < self._log.min_position and not count:
                            status = ReadStatus.MESSAGE_WAS_REMOVING
                        continue
                    position, size = found
                if count and (total + size > size_max or count >= count_max):
                    at += place
                    full = True
                    break
                record = self._log.slice(position, size)
                if record is None or (accepts is not None and not accepts(record)):
                    continue
                buffers.append(record)
                total += size
                count += 1
                if count >= count_max:
                    at += place + 1
                    full = True
                    break
            if full:
                break
            at += len(entries) // ENTRY_SIZE
            if at % (queue.files.file_size // ENTRY_SIZE) == 0 or at >= max_offset:
                break
            piece = min(piece * 8, SCAN_MAX)
        if count:
            status = ReadStatus.FOUND
        return ReadResult(status, at, min_offset, max_offset, buffers, count, total)

    def _code_behind(
        self, queue: ConsumeQueue, address: int, position: int, size: int
    ) -> int | None:
        """Return the tags code of a message whose entry has an address; None if there is no such message.

        If a power cut took the unit, the message is not skipped, as RocketMQ would.
        """
        unit = self._unit_of(queue, address)
        if unit is not None:
            return unit.tags_code
        record = self._log.slice(position, size)
        if record is None or not self._verification.is_good(position):
            return None
        return tags_code(properties_of(record))

    def _read_batches(
        self,
        queue: BatchConsumeQueue,
        offset: int,
        count_max: int,
        matches: EntryFilter | None,
        size_max: int,
        min_offset: int,
        max_offset: int,
    ) -> ReadResult:
        """Read a batch queue: count_max counts messages; a record is returned whole, even if `offset` is
        inside its batch.
        """
        codes = None if matches is None else matches.codes
        accepts = None if matches is None else matches.record
        buffers: list[bytes | memoryview] = []
        total = count = 0
        at = offset
        for position, size, code, base, messages in queue.records(offset, count_max):
            if base >= max_offset:
                break
            record = self._log.slice(position, size)
            if record is None or not self._verification.is_good(position):
                at = base + messages
                continue
            if buffers and (total + size > size_max or count + messages > count_max):
                break
            at = base + messages
            # The code of an inner batch is that of the batch, not of its messages: let it through.
            is_batch = bool(sys_flag_of(record) & INNER_BATCH)
            if not is_batch and (
                (codes is not None and code not in codes)
                or (accepts is not None and not accepts(record))
            ):
                continue
            buffers.append(record)
            total += size
            count += messages
        status = ReadStatus.FOUND if buffers else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(status, at, min_offset, max_offset, buffers, count, total)


# By the number of entries: how to take position and size of each.
_unpacks: list[Callable[[memoryview], tuple[int, ...]] | None] = [None] * (_AT_ONCE_MAX + 1)


def _outside(offset: int, min_offset: int, max_offset: int, real_end: int) -> ReadResult:
    if real_end == 0:
        status, following = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < min_offset:
        status, following = ReadStatus.OFFSET_TOO_SMALL, min_offset
    elif max_offset <= offset <= real_end:
        # Invariant 3 of reading_limit.py.
        status, following = ReadStatus.OFFSET_OVERFLOW_ONE, offset
    else:
        status, following = ReadStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return ReadResult(status, following, min_offset, max_offset, [], 0, 0)


def _matching(entries: memoryview, codes: frozenset[int] | None) -> "range | list[int]":
    """Return the places of the entries whose code may be among `codes`: a first sieve on the low 32 bits.

    Addresses in consumequeue_ext have a 1 as their highest bit and the following 31 bits zero; they
    pass when their low half is seen, so they are let through by a look at the high half.
    """
    count = len(entries) // ENTRY_SIZE
    if codes is None or count < _VECTOR_MIN:
        return range(count)
    import numpy

    words = numpy.frombuffer(entries, dtype=">i4").reshape(count, 5)
    low = words[:, 4]
    hits = words[:, 3] < -1
    if len(codes) > _CODES_ONE_BY_ONE_MAX:
        hits |= numpy.isin(low, [_low_word(code) for code in codes])
    else:
        for code in codes:
            hits |= low == _low_word(code)
    found: list[int] = numpy.flatnonzero(hits).tolist()
    return found


def _low_word(code: int) -> int:
    word = code & 0xFFFF_FFFF
    return word - 0x1_0000_0000 if word & 0x8000_0000 else word
