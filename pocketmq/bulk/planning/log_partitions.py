"""Partitions read from the log alone: the records themselves give topic, queue and offset.

1. Stores without queues, and records behind the queues of a crashed store: there is nothing else to read.
2. Archives: their index says which queues and offsets a file contains.
3. Many queues with a few messages each, if most of the log is wanted (`by_log`): reading a queue's index
   costs as much as a hundred records. The planner has put the bounds of such a partition at records. The
   result must equal that of the queues: every queue continues without a gap, and the walk reaches the end. A
   topic that was deleted and created again, records with several messages, and damage fail this check; then
   the queues are read after all.
Ranges begin at a record.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.decode import decode
from pocketmq.bulk.fetch import File, LocalFile
from pocketmq.bulk.log_walk import walk, walk_piece
from pocketmq.bulk.offsets import EARLIEST, LATEST, LossRule, Offsets, Positions
from pocketmq.bulk.partition import Partition
from pocketmq.bulk.rows import Read, WantedOffsets, cut, decode_filtered
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.layout import FileSpan

# From the first to the last byte of a batch.
_SPAN_MAX = 1 << 30
# A request to an object store.
_PIECE = 1 << 26
_PLACE = ("topic", "queueId", "queueOffset")


def read_walked(
    store: StoreSnapshot, partition: Partition, read: Read, loss: LossRule
) -> Iterator[pa.RecordBatch]:
    """Walk the files, selecting rows by topic, offset and time."""
    helpers = [*_PLACE, "storeTimestamp", "commitLogOffset"]
    for low, high in partition.ranges:
        file = store.log_file_of(low)
        opened = _opened(store, file, low, loss)
        if file is None or opened is None:
            continue
        opened.advise(sequential=True)
        high = min(file.first + file.size, high)
        for at, data, starts, sizes in _pieces(opened, file, low, high, loss):
            for begin, end in cut(starts, sizes, read, _SPAN_MAX):
                batch = decode_filtered(
                    store, data, starts[begin:end], None, read, loss, file, first=at, extra=helpers
                )
                batch = batch.filter(_walk_mask(batch, partition)).select(list(read.columns))
                if batch.num_rows:
                    yield batch


def read_by_log(
    store: StoreSnapshot, partition: Partition, read: Read, loss: LossRule
) -> Iterator[pa.RecordBatch] | None:
    """Yield the rows of a partition of kind 3; None if its queues must be read."""
    queues = {(q.topic, q.queue_id): (q.start, q.end) for q in partition.queues}
    wanted = WantedOffsets(queues)
    seen: list[tuple[FileSpan, int, pa.Buffer, Int64s, Int64s]] = []
    places: list[Int64s] = []
    offsets: list[Int64s] = []
    strict = LossRule(fail=False)
    for low, high in partition.ranges:
        file = store.log_file_of(low)
        opened = _opened(store, file, low, strict)
        if file is None or not isinstance(opened, LocalFile):
            return None
        data = opened.read(low - file.first, min(file.size, high - file.first))
        starts, sizes = walk(data, low, partial(_report_torn, strict, file))
        if strict.losses:
            return None
        rows = decode(data, starts, _PLACE, on_bad=partial(_report_torn, strict, file))
        if strict.losses or rows.num_rows != len(starts):
            return None
        place, inside = wanted.find(rows)
        seen.append((file, low, data, starts[inside], sizes[inside]))
        places.append(place[inside])
        offsets.append(rows.column("queueOffset").to_numpy()[inside])
    if not _without_gaps(np.concatenate(places), np.concatenate(offsets)):
        return None
    return _decoded(store, seen, read, loss)


def _decoded(
    store: StoreSnapshot,
    seen: list[tuple[FileSpan, int, pa.Buffer, Int64s, Int64s]],
    read: Read,
    loss: LossRule,
) -> Iterator[pa.RecordBatch]:
    for file, low, data, starts, sizes in seen:
        for begin, end in cut(starts, sizes, read, _SPAN_MAX):
            batch = decode_filtered(
                store, data, starts[begin:end], None, read, loss, file, first=low
            )
            if batch.num_rows:
                yield batch


def _without_gaps(places: Int64s, offsets: Int64s) -> bool:
    """Return True if the offsets of each queue grow by one from row to row."""
    order = np.argsort(places, kind="stable")
    steps = np.diff(offsets[order])[np.diff(places[order]) == 0]
    return bool((steps == 1).all())


def _opened(store: StoreSnapshot, file: FileSpan | None, low: int, loss: LossRule) -> File | None:
    """Return the opened file; None, with a loss recorded, if it was deleted."""
    if file is not None:
        try:
            return store.open_log(file)
        except FileNotFoundError:
            pass
    name = store.missing_file(low) if file is None else file.path
    loss.lost("a commit log file was deleted before it was read", name, low)
    return None


def _pieces(
    opened: File, file: FileSpan, low: int, high: int, loss: LossRule
) -> Iterator[tuple[int, pa.Buffer, Int64s, Int64s]]:
    """Yield (position of the first byte, data, starts, sizes) of the range; remote ones some
    MiB at a time.
    """
    on_torn = partial(_report_torn, loss, file)
    if isinstance(opened, LocalFile):
        data = opened.read(low - file.first, high - file.first)
        yield low, data, *walk(data, low, on_torn)
        return
    at = low
    while at < high:
        step = _PIECE
        while True:
            end = min(high, at + step)
            data = opened.read(at - file.first, end - file.first)
            starts, sizes, used = walk_piece(data, at, on_torn, is_last=end == high)
            if used or end == high:
                break
            # A record that is longer than a piece.
            step *= 2
        yield at, data, starts, sizes
        if used < 0:
            return
        at = at + used if end < high else high


def _report_torn(loss: LossRule, file: FileSpan, position: int, reason: str) -> None:
    loss.lost(reason, file.path, position)


def _walk_mask(batch: pa.RecordBatch, partition: Partition) -> pa.Array:
    """Return the rows of the wanted topics, offsets and times."""
    if partition.queues:
        queues = {(q.topic, q.queue_id): (q.start, q.end) for q in partition.queues}
        mask = WantedOffsets(queues).find(batch)[1]
        for topic, queue_id, first in partition.renewed:
            older = pc.less(batch.column("commitLogOffset"), first)
            here = pc.and_(
                pc.equal(batch.column("topic"), topic), pc.equal(batch.column("queueId"), queue_id)
            )
            mask &= ~pc.and_(here, older).to_numpy(zero_copy_only=False)
        return pa.array(mask)
    broker = partition.root.broker_name
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    wanted = np.array([partition.topics.has(t) for t in names], np.bool_)
    codes = topics.indices.to_numpy()
    mask = wanted[codes] if len(names) else np.zeros(0, np.bool_)
    queue_ids = batch.column("queueId").to_numpy()
    offsets = batch.column("queueOffset").to_numpy()
    ms = batch.column("storeTimestamp").cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    if partition.topics.assign is not None:
        assigned = np.zeros(len(mask), np.bool_)
        for code, name in enumerate(names):
            ids = partition.topics.assign.get(name, {}).get(broker, ())
            assigned |= (codes == code) & np.isin(queue_ids, np.array(ids, np.int64))
        mask &= assigned
    for positions, is_start in ((partition.starting, True), (partition.ending, False)):
        mask &= _within(positions, is_start, names, codes, broker, queue_ids, offsets, ms)
    return pa.array(mask)


def _within(
    positions: Positions,
    is_start: bool,
    names: list[str],
    codes: Int64s,
    broker: str,
    queue_ids: Int64s,
    offsets: Int64s,
    ms: Int64s,
) -> Bools:
    """Return the rows behind a start, or before an end. A start "latest" leaves nothing."""
    inside: Bools = np.ones(len(codes), np.bool_)
    by_time = positions.ms is not None or positions.ms_by_queue is not None
    if positions.ms is not None:
        inside &= (ms >= positions.ms) if is_start else (ms < positions.ms)
    table: Offsets | None = positions.ms_by_queue if by_time else positions.offsets
    if table is None:
        if not by_time and positions.word == ("latest" if is_start else "earliest"):
            inside[:] = False
        return inside
    values = ms if by_time else offsets
    for code, name in enumerate(names):
        for queue_id, bound in table.get(name, {}).get(broker, {}).items():
            here = (codes == code) & (queue_ids == queue_id)
            if bound in (EARLIEST, LATEST) and not by_time:
                everything = (bound == EARLIEST) == is_start
                inside &= ~here | everything
            else:
                reached = values >= bound
                inside &= ~here | (reached if is_start else ~reached)
    return inside
