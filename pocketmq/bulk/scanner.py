"""Reads a partition as Arrow batches: index entries of its ranges, sorted by position, some MiB at a time."""

import platform
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.coded_tags import CodedTags, can_be_coded
from pocketmq.bulk.columns.decode import IndexedRecords, decode
from pocketmq.bulk.columns.schema import parts_of
from pocketmq.bulk.errors import NotAStore, OtherStore
from pocketmq.bulk.fetch import File, LocalFile
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import BEFORE, BEHIND, Partition, QueueRange
from pocketmq.bulk.planning.archived import ArchivedLog
from pocketmq.bulk.planning.log_partitions import read_by_log, read_walked
from pocketmq.bulk.queue import ENTRY, Entries, Queue, joined
from pocketmq.bulk.rows import ROWS_MAX, Read, cut, decode_filtered, needed
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.layout import FileSpan
from pocketmq.model.java_hash import tag_code
from pocketmq.model.names import SCHEDULE_TOPIC

# Where only the index is read there is nothing to keep in the second-level cache.
_INDEX_ROWS_MAX = 1 << 16
# Columns that say nothing of a single entry.
_OF_NUMBERS = frozenset({"topic", "brokerName", "queueId", "queueOffset"})
_BLANK = np.zeros((), ENTRY)
_PAGE = 4096
# Fewer are sorted more quickly than copied apart.
_ENTRIES_A_SLICE = 64
_SPAN_MAX = 1 << 30
# An object store is asked for whole spans: a sparse selection is cut so that a request stays small.
_REMOTE_SPAN_MAX = 1 << 26


def read_partition(partition: Partition, read: Read, loss: LossRule) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition in the order of the log; queues keep their own order.

    Raises: DataLoss (see LossRule) for missing records and files; OtherStore.
    """
    store = _planned_store(partition)
    try:
        if partition.walk:
            yield from read_walked(store, partition, read, loss)
            return
        by_log = _is_cheaper_by_log(partition, read)
        batches = read_by_log(store, partition, read, loss) if by_log else None
        if batches is not None:
            yield from batches
        else:
            queues = [
                (q, store.queue(q.topic, q.queue_id, batch=q.batch)) for q in partition.queues
            ]
            if read.by_queue:
                queues.sort(key=lambda pair: (pair[0].topic, pair[0].queue_id))
            for low, high in partition.ranges:
                yield from _read_range(store, partition, queues, low, high, read, loss)
    finally:
        store.close()


def _is_cheaper_by_log(partition: Partition, read: Read) -> bool:
    """Return True if the records contain all that is wanted, at less than a page read per queue."""
    if not partition.by_log or "tagsCode" in read.columns:
        return False
    size = sum(high - low for low, high in partition.ranges)
    return parts_of(needed(read)) != {"queue"} or size <= _PAGE * len(partition.queues)


def _planned_store(partition: Partition) -> StoreSnapshot:
    """Open the store of a partition. Raises: OtherStore if this host has another one at its path, or none."""
    root = partition.root
    planned = partition.identity
    try:
        store = ArchivedLog(root, partition.files) if partition.files else StoreSnapshot(root)
    except NotAStore as error:
        raise OtherStore(root.path, root.broker_name, platform.node(), error.reason) from None
    # A file that is missing in an archive is a loss.
    is_lost = partition.files and planned is not None and store.head_at(planned.first) is None
    if planned is not None and not is_lost and not store.is_the(planned):
        reason = f"its commit log does not hold the records of {planned.first:020d}"
        raise OtherStore(root.path, root.broker_name, platform.node(), reason)
    return store


def _read_range(
    store: StoreSnapshot,
    partition: Partition,
    queues: Sequence[tuple[QueueRange, Queue]],
    low: int,
    high: int,
    read: Read,
    loss: LossRule,
) -> Iterator[pa.RecordBatch]:
    touches_log = parts_of(needed(read)) != {"queue"} or any(q.batch for q, _ in queues)
    touches_log |= read.verify_crc
    blank = not touches_log and _is_blank(read)
    entries = _entries(queues, low, high, read, loss, blank=blank)
    count = sum(len(e.table) for e in entries)
    if not count:
        return
    file = store.log_file_of(low)
    if file is None:
        loss.lost(
            f"{count} records are in a commit log file that was deleted before it was read",
            store.missing_file(low),
            low,
        )
        return
    if not touches_log:
        known = _known(queues, entries, blank=blank)
        known = _in_order(known) if read.ordered else known
        yield from _read_index_only(store, known, read)
        return
    try:
        opened = store.open_log(file)
    except FileNotFoundError:
        loss.lost("a commit log file was deleted before it was read", file.path, low)
        return
    opened.advise(sequential=partition.dense)
    span_max = _SPAN_MAX if isinstance(opened, LocalFile) else _REMOTE_SPAN_MAX
    offset_bounds = {(q.topic, q.queue_id): (q.start, q.end) for q, _ in queues if q.batch}
    coded = CodedTags() if can_be_coded(read) and not offset_bounds else None
    loose = coded is not None and not read.ordered
    cuts = _cuts_near(entries, span_max) if loose else None
    for piece in (
        _cut(_in_order(_known(queues, entries)), read, span_max)
        if cuts is None
        else _near(queues, entries, cuts)
    ):
        batch = None
        if coded is not None:
            data, starts = _data_of(piece, opened, file)
            batch = coded.batch(data, starts, piece, read.columns, store.root.broker_name)
        if batch is None:
            piece = _in_order(piece) if loose else piece
            piece = _by_queue(piece) if read.by_queue else piece
            data, starts = _data_of(piece, opened, file)
            batch = decode_filtered(
                store, data, starts, piece, read, loss, file,
                may_hold_batches=bool(offset_bounds),
                exact=offset_bounds or None,
            )  # fmt: skip
        if batch.num_rows:
            yield batch


def _cut(known: IndexedRecords, read: Read, span_max: int) -> Iterator[IndexedRecords]:
    for begin, end in cut(known.positions, known.sizes, read, span_max):
        yield known.take(slice(begin, end))


def _cuts_near(entries: Sequence[Entries], span_max: int) -> list[list[int]] | None:
    """Cut the log into pieces; a list for each queue: at which of its entries each piece ends.

    Returns: None where queues have so few entries that sorting them is cheaper.
    """
    positions = [e.table["position"].astype(np.int64) for e in entries]
    total = sum(map(len, positions))
    first = min(int(p.min()) for p in positions if len(p))
    last = max(int(p.max()) for p in positions if len(p))
    count = max(-(-total // ROWS_MAX), -(-(last - first) // (span_max // 2)), 1)
    if total < _ENTRIES_A_SLICE * count * len(entries):
        return None
    edges = np.linspace(first, last + 1, count + 1).astype(np.int64)[1:-1]
    # Each entry is in one piece, also where a queue has them in another order than the log.
    inner = [np.maximum.accumulate(np.searchsorted(p, edges)).tolist() for p in positions]
    return [[*ends, len(p)] for ends, p in zip(inner, positions, strict=True)]


def _near(
    queues: Sequence[tuple[QueueRange, Queue]],
    entries: Sequence[Entries],
    cuts: Sequence[Sequence[int]],
) -> Iterator[IndexedRecords]:
    """Pieces of the log, the entries of each queue by queue: sorting them costs more than reading tags."""
    begins = [0] * len(entries)
    for ends in zip(*cuts, strict=True):
        parts = [
            Entries(e.table[begin:end], e.offsets[begin:end])
            for e, begin, end in zip(entries, begins, ends, strict=True)
        ]
        begins = list(ends)
        if any(len(part.table) for part in parts):
            yield _known(queues, parts)


def _data_of(piece: IndexedRecords, opened: File, file: FileSpan) -> tuple[pa.Buffer, Int64s]:
    """The bytes of some records, and where they begin there."""
    positions = piece.positions
    base = int(positions.min())
    end = int((positions + piece.sizes).max())
    return opened.read(base - file.first, end - file.first), positions - base


def _is_blank(read: Read) -> bool:
    """Whether order and columns ask only for the number of a queue's entries."""
    return not read.ordered and not read.filters.tags and _OF_NUMBERS.issuperset(read.columns)


def _in_order(known: IndexedRecords) -> IndexedRecords:
    """The same in the order of the log."""
    positions = known.positions
    if (np.diff(positions) >= 0).all():
        return known
    return known.take(np.argsort(positions, kind="stable"))


def _by_queue(known: IndexedRecords) -> IndexedRecords:
    """The same queue by queue, those of each in the order that they have."""
    return known.take(np.argsort(known.queue, kind="stable"))


def _entries(
    queues: Sequence[tuple[QueueRange, Queue]],
    low: int,
    high: int,
    read: Read,
    loss: LossRule,
    *,
    blank: bool,
) -> list[Entries]:
    """Return the wanted index entries of each queue whose records begin in [low, high).

    blank: none of them is read.
    """
    codes = np.array(sorted({tag_code(t) for t in read.filters.tags}), np.int64)
    found: list[Entries] = []
    for wanted, queue in queues:
        entries = _entries_of(wanted, queue, low, high, loss, blank=blank)
        keep: Bools | None = None
        if wanted.batch:
            keep = entries.offsets < wanted.end
        elif len(codes) and wanted.topic != SCHEDULE_TOPIC:
            # Delayed messages have their delivery time in place of the code; the text decides later.
            keep = _is_one_of(entries.table["code"], codes)
        if keep is not None and not keep.all():
            entries = Entries(entries.table[keep], entries.offsets[keep])
        found.append(entries)
    return found


def _known(
    queues: Sequence[tuple[QueueRange, Queue]], entries: Sequence[Entries], *, blank: bool = False
) -> IndexedRecords:
    """What the queues say about all their entries, queue by queue. blank: nothing but their number."""
    counts = [len(e.table) for e in entries]
    return IndexedRecords(
        tuple(q.topic for q, _ in queues),
        np.array([q.queue_id for q, _ in queues], np.int32),
        np.repeat(np.arange(len(queues), dtype=np.int32), counts),
        np.broadcast_to(_BLANK, sum(counts)) if blank else joined([e.table for e in entries]),
        np.concatenate([e.offsets for e in entries]) if len(entries) > 1 else entries[0].offsets,
    )


def _entries_of(
    wanted: QueueRange, queue: Queue, low: int, high: int, loss: LossRule, *, blank: bool
) -> Entries:
    """The wanted entries of one queue whose records begin in [low, high)."""
    after = queue.end_index()
    first = queue.at_offset(wanted.start, queue.first_index, after)
    last = after if wanted.batch else queue.at_offset(wanted.end, first, after)
    begin = queue.at_position(low, first, last)
    end = queue.at_position(high, begin, last)
    if not wanted.batch:
        # Files before or behind were deleted, and perhaps some of the wanted entries with them.
        cut = begin == queue.first_index if wanted.start == BEFORE else first > wanted.start
        cut |= end == after if wanted.end == BEHIND else last < wanted.end
        if cut:
            loss.lost(
                f"topic {wanted.topic}, queue {wanted.queue_id}: index files of "
                f"{_offsets_of(wanted, low, high)} are no longer there; entries {first}..{last} are left"
            )
    if blank:
        offsets = np.arange(begin, end, dtype=np.int64)
        entries = Entries(np.broadcast_to(_BLANK, len(offsets)), offsets)
    else:
        entries = queue.entries(begin, end)
    queue.close()
    return entries


def _offsets_of(wanted: QueueRange, low: int, high: int) -> str:
    start = f"position {low}" if wanted.start == BEFORE else str(wanted.start)
    end = f"position {high}" if wanted.end == BEHIND else str(wanted.end)
    return f"offsets {start}..{end}"


def _is_one_of(values: npt.NDArray[Any], codes: Int64s) -> Bools:
    if len(codes) > 8:
        return np.isin(values, codes)
    keep: Bools = values == codes[0]
    for code in codes[1:]:
        keep |= values == code
    return keep


def _read_index_only(
    store: StoreSnapshot, known: IndexedRecords, read: Read
) -> Iterator[pa.RecordBatch]:
    """Read all columns from the ConsumeQueue, without opening the log."""
    empty = pa.py_buffer(b"")
    for begin in range(0, len(known.table), _INDEX_ROWS_MAX):
        piece = known.take(slice(begin, begin + _INDEX_ROWS_MAX))
        yield decode(
            empty, piece.positions, read.columns,
            on_bad=_never, broker_name=store.root.broker_name, known=piece,
        )  # fmt: skip


def _never(place: int, reason: str) -> None:
    raise AssertionError(f"{reason} at {place}")
