"""Reads a partition as Arrow batches: index entries of its ranges, sorted by position, some MiB at a time."""

import platform
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.archived import ArchivedLog
from pocketmq.bulk.decode import Known, decode
from pocketmq.bulk.errors import NotAStore, OtherStore
from pocketmq.bulk.fetch import LocalFile
from pocketmq.bulk.gather import Bools, Int64s
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Partition, QueueRange
from pocketmq.bulk.queue import Entries, Queue, joined
from pocketmq.bulk.rows import Read, cut, decode_filtered, needed
from pocketmq.bulk.schema import parts_of
from pocketmq.bulk.store import Store
from pocketmq.bulk.walked import read_by_log, read_walked
from pocketmq.remoting.java_hash import tag_code
from pocketmq.remoting.names import SCHEDULE_TOPIC

# Where only the index is read there is nothing to keep in the second-level cache.
_INDEX_ROWS_MAX = 1 << 16
_PAGE = 4096
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


def _planned_store(partition: Partition) -> Store:
    """Open the store of a partition. Raises: OtherStore if this host has another one at its path, or none."""
    root = partition.root
    if partition.files:
        return ArchivedLog(root, partition.files)
    try:
        store = Store(root)
    except NotAStore as error:
        raise OtherStore(root.path, root.broker_name, platform.node(), error.reason) from None
    if partition.identity is not None and not store.is_the(partition.identity):
        reason = f"its commit log does not hold the records of {partition.identity.first:020d}"
        raise OtherStore(root.path, root.broker_name, platform.node(), reason)
    return store


def _read_range(
    store: Store,
    partition: Partition,
    queues: Sequence[tuple[QueueRange, Queue]],
    low: int,
    high: int,
    read: Read,
    loss: LossRule,
) -> Iterator[pa.RecordBatch]:
    known = _entries(queues, low, high, read.filters.tags, loss)
    if not len(known.table):
        return
    file = store.log_file_of(low)
    touches_log = parts_of(needed(read)) != {"queue"} or any(q.batch for q, _ in queues)
    if file is None:
        loss.lost(
            f"{len(known.table)} records are in a commit log file that was deleted before it was read",
            store.missing_file(low),
            int(known.positions[0]),
        )
        return
    if not touches_log and not read.verify_crc:
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
    for begin, end in cut(known.positions, known.sizes, read, span_max):
        piece = known.take(slice(begin, end))
        positions = piece.positions
        base = int(positions[0]) - file.first
        data = opened.read(base, int((positions + piece.sizes).max()) - file.first)
        batch = decode_filtered(
            store, data, positions - positions[0], piece, read, loss, file,
            may_hold_batches=bool(offset_bounds),
            exact=offset_bounds or None,
        )  # fmt: skip
        if batch.num_rows:
            yield batch


def _entries(
    queues: Sequence[tuple[QueueRange, Queue]],
    low: int,
    high: int,
    tags: tuple[str, ...],
    loss: LossRule,
) -> Known:
    """Return the index entries of all queues whose records begin in [low, high), in the order of the log."""
    codes = np.array(sorted({tag_code(t) for t in tags}), np.int64)
    tables: list[npt.NDArray[Any]] = []
    offsets: list[Int64s] = []
    for wanted, queue in queues:
        entries = _entries_of(wanted, queue, low, high, loss)
        keep: Bools | None = None
        if wanted.batch:
            keep = entries.offsets < wanted.end
        elif len(codes) and wanted.topic != SCHEDULE_TOPIC:
            # Delayed messages have their delivery time in place of the code; the text decides later.
            keep = _is_one_of(entries.table["code"], codes)
        if keep is not None and not keep.all():
            entries = Entries(entries.table[keep], entries.offsets[keep])
        tables.append(entries.table)
        offsets.append(entries.offsets)
    counts = [len(t) for t in tables]
    known = Known(
        tuple(q.topic for q, _ in queues),
        np.array([q.queue_id for q, _ in queues], np.int32),
        np.repeat(np.arange(len(queues), dtype=np.int32), counts),
        joined(tables),
        np.concatenate(offsets) if len(offsets) > 1 else offsets[0],
    )
    if sum(1 for c in counts if c) <= 1:
        return known
    return known.take(np.argsort(known.positions, kind="stable"))


def _entries_of(wanted: QueueRange, queue: Queue, low: int, high: int, loss: LossRule) -> Entries:
    """Return the wanted entries of one queue whose records begin in [low, high)."""
    end = queue.end_index()
    first = queue.at_offset(wanted.start, queue.first_index, end)
    last = end if wanted.batch else queue.at_offset(wanted.end, first, end)
    if not wanted.batch and (first > wanted.start or last < wanted.end):
        loss.lost(
            f"topic {wanted.topic}, queue {wanted.queue_id}: index files of offsets "
            f"{wanted.start}..{wanted.end} are no longer there; entries {first}..{last} are left"
        )
    begin = queue.at_position(low, first, last)
    entries = queue.entries(begin, queue.at_position(high, begin, last))
    queue.close()
    return entries


def _is_one_of(values: npt.NDArray[Any], codes: Int64s) -> Bools:
    if len(codes) > 8:
        return np.isin(values, codes)
    keep: Bools = values == codes[0]
    for code in codes[1:]:
        keep |= values == code
    return keep


def _read_index_only(store: Store, known: Known, read: Read) -> Iterator[pa.RecordBatch]:
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
