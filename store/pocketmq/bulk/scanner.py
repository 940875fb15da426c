"""A partition -> Arrow batches: index entries of its ranges, sorted by position, some MiB at a time."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.decode import Known, decode
from pocketmq.bulk.errors import NotAStore, OtherStore
from pocketmq.bulk.fetch import LocalFile
from pocketmq.bulk.gather import Bools, Int64s
from pocketmq.bulk.offsets import EARLIEST, LATEST, LossRule, Offsets, Positions
from pocketmq.bulk.planner import Filters, Partition, QueueRange
from pocketmq.bulk.queue import Entries, Queue, joined
from pocketmq.bulk.schema import parts_of
from pocketmq.bulk.store import Store
from pocketmq.bulk.walk import walk
from pocketmq.files.layout import FileSpan
from pocketmq.remoting.java_hash import tag_code
from pocketmq.remoting.names import SCHEDULE_TOPIC

# Places and properties of a batch stay in the second-level cache: with 65,536 rows tags and properties cost
# a third more. Where only the index is read there is nothing to keep there.
_ROWS_MAX = 1 << 14
_INDEX_ROWS_MAX = 1 << 16
_SPAN_MAX = 1 << 30
# An object store is asked for whole spans: a sparse selection is cut so that a request stays small.
_REMOTE_SPAN_MAX = 1 << 26
# Offset bounds per (topic, queue): records that hold several messages reach over them.
Exact = dict[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True)
class Read:
    """How records become rows."""

    columns: tuple[str, ...]
    filters: Filters = field(default_factory=Filters)
    decompress: bool = True
    verify_crc: bool = False
    batch_bytes: int = 8 << 20


def read_partition(partition: Partition, read: Read, loss: LossRule) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in the order of the log; queues keep their own order.

    Raises: DataLoss (see LossRule) for records and files that are not there; OtherStore.
    """
    store = _planned_store(partition)
    try:
        if partition.walk:
            yield from _read_walked(store, partition, read, loss)
        else:
            queues = [
                (q, store.queue(q.topic, q.queue_id, batch=q.batch)) for q in partition.queues
            ]
            for low, high in partition.ranges:
                yield from _read_range(store, partition, queues, low, high, read, loss)
    finally:
        store.close()


def _planned_store(partition: Partition) -> Store:
    """The store of a partition. Raises: OtherStore when this host has another one at its path, or none."""
    root = partition.root
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
    touches_log = parts_of(_needed(read)) != {"queue"} or any(q.batch for q, _ in queues)
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
    for begin, end in _cut(known.positions, known.sizes, read, span_max):
        piece = known.take(slice(begin, end))
        positions = piece.positions
        base = int(positions[0]) - file.first
        data = opened.read(base, int((positions + piece.sizes).max()) - file.first)
        batch = _decode_filtered(
            store, data, positions - positions[0], piece, read, loss, file,
            may_hold_batches=bool(offset_bounds),
            exact=offset_bounds or None,
        )  # fmt: skip
        if batch.num_rows:
            yield batch


def _needed(read: Read) -> list[str]:
    """Columns that have to be decoded: the wanted ones and those that filters look at."""
    extra: list[str] = []
    if read.filters.tags:
        extra.append("tags")
    if read.filters.keys:
        extra.append("keys")
    if read.filters.start_ms is not None or read.filters.end_ms is not None:
        extra.append("storeTimestamp")
    return [*read.columns, *(c for c in extra if c not in read.columns)]


def _entries(
    queues: Sequence[tuple[QueueRange, Queue]],
    low: int,
    high: int,
    tags: tuple[str, ...],
    loss: LossRule,
) -> Known:
    """Index entries of all queues whose records begin in [low, high), in the order of the log."""
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
    """The wanted entries of one queue whose records begin in [low, high)."""
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


def _cut(positions: Int64s, sizes: Int64s, read: Read, span_max: int) -> Iterator[tuple[int, int]]:
    """Rows begin <= i < end of each batch: by bytes when bodies are copied, else by rows."""
    heavy = "body" in read.columns
    total = np.cumsum(sizes)
    begin = 0
    while begin < len(positions):
        end = min(begin + _ROWS_MAX, len(positions))
        if heavy:
            base = int(total[begin] - sizes[begin])
            end = min(end, int(np.searchsorted(total, base + read.batch_bytes, side="right")))
        end = min(end, int(np.searchsorted(positions, positions[begin] + span_max)))
        end = max(end, begin + 1)
        yield begin, end
        begin = end


def _read_index_only(store: Store, known: Known, read: Read) -> Iterator[pa.RecordBatch]:
    """All columns come from the ConsumeQueue: the log is not opened."""
    empty = pa.py_buffer(b"")
    for begin in range(0, len(known.table), _INDEX_ROWS_MAX):
        piece = known.take(slice(begin, begin + _INDEX_ROWS_MAX))
        yield decode(
            empty, piece.positions, read.columns,
            on_bad=_never, broker_name=store.root.broker_name, known=piece,
        )  # fmt: skip


def _never(place: int, reason: str) -> None:
    raise AssertionError(f"{reason} at {place}")


def _decode_filtered(
    store: Store,
    data: pa.Buffer,
    starts: Int64s,
    known: Known | None,
    read: Read,
    loss: LossRule,
    file: FileSpan,
    *,
    first: int = 0,
    may_hold_batches: bool = False,
    exact: Exact | None = None,
    extra: Sequence[str] = (),
) -> pa.RecordBatch:
    """Decodes and filters records of a commit log file.

    first: position in the log of data's first byte, where `known` does not say it.
    """
    base = (int(known.positions[0]) - int(starts[0])) if known is not None else first

    def on_bad(place: int, reason: str) -> None:
        loss.lost(reason, file.path, base + place)

    filters = read.filters
    columns = _with_helpers(read, exact, extra)
    # Rows that a code or an offset already chose are decoded at once; else the filter's columns first.
    first_look = filters.keys or filters.start_ms is not None or filters.end_ms is not None
    if (first_look or (filters.tags and known is None)) and not may_hold_batches:
        light = [c for c in columns if c not in read.columns or c in ("tags", "keys")]
        light += [c for c in ("storeTimestamp", "commitLogOffset") if c not in light]
        look = decode(
            data, starts, light, on_bad=on_bad, broker_name=store.root.broker_name,
            known=known, verify_crc=read.verify_crc,
        )  # fmt: skip
        kept = look.filter(_mask(look, filters, None))
        rows = np.isin(starts + base, kept.column("commitLogOffset").to_numpy())
        starts = starts[rows]
        known = None if known is None else known.take(rows)
    batch = decode(
        data, starts, columns, on_bad=on_bad, broker_name=store.root.broker_name, known=known,
        may_hold_batches=may_hold_batches, unpack=read.decompress, verify_crc=read.verify_crc,
    )  # fmt: skip
    if filters.any or exact:
        batch = batch.filter(_mask(batch, filters, exact))
    return batch if extra else batch.select(list(read.columns))


def decode_joined(
    data: pa.Buffer, starts: Int64s, read: Read, loss: LossRule, broker_name: str, exact: Exact
) -> pa.RecordBatch:
    """Decodes and filters records that a broker sent: replies to pulls, one behind the other."""

    def on_bad(place: int, reason: str) -> None:
        loss.lost(f"a record sent by broker {broker_name} is bad: {reason}", "reply", place)

    batch = decode(
        data, starts, _with_helpers(read, exact, ()), on_bad=on_bad, broker_name=broker_name,
        unpack=read.decompress, verify_crc=read.verify_crc,
    )  # fmt: skip
    return batch.filter(_mask(batch, read.filters, exact)).select(list(read.columns))


def _with_helpers(read: Read, exact: Exact | None, extra: Sequence[str]) -> list[str]:
    columns = _needed(read)
    helpers = [*extra, *(("topic", "queueId", "queueOffset") if exact else ())]
    return columns + [c for c in dict.fromkeys(helpers) if c not in columns]


def _mask(
    batch: pa.RecordBatch,
    filters: Filters,
    exact: Exact | None,
) -> pa.Array:
    mask = pa.repeat(pa.scalar(True), batch.num_rows)
    if filters.tags:
        mask = pc.and_(mask, pc.is_in(batch.column("tags"), pa.array(filters.tags, pa.string())))
    if filters.keys:
        mask = pc.and_(mask, _has_key(batch.column("keys"), filters.keys))
    if filters.start_ms is not None or filters.end_ms is not None:
        ms = pc.divide(batch.column("storeTimestamp").cast(pa.int64()), 1000)
        if filters.start_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(ms, filters.start_ms))
        if filters.end_ms is not None:
            mask = pc.and_(mask, pc.less(ms, filters.end_ms))
    if exact:
        mask = pc.and_(mask, _inside(batch, exact))
    return pc.fill_null(mask, False)


class _Wanted:
    """Offset bounds of many queues, compared with many rows at once."""

    def __init__(self, bounds: Exact) -> None:
        self._topics = pa.array(list(dict.fromkeys(t for t, _ in bounds)), pa.string())
        numbers = {topic: n for n, topic in enumerate(self._topics.to_pylist())}
        table = np.array(
            sorted((numbers[t] << 32 | q, *limits) for (t, q), limits in bounds.items()), np.int64
        ).reshape(-1, 3)
        self._keys, self._starts, self._ends = table.T.copy()

    def find(self, batch: pa.RecordBatch) -> tuple[Int64s, Bools]:
        """For each row of topic, queueId and queueOffset: the queue's number in key order, or -1 for one that
        is not named; and whether the offset is within its bounds."""
        topics = pc.index_in(batch.column("topic"), self._topics).fill_null(-1).to_numpy()
        keys = topics.astype(np.int64) << 32 | batch.column("queueId").to_numpy()
        places = np.minimum(np.searchsorted(self._keys, keys), max(0, len(self._keys) - 1))
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64), np.zeros(len(keys), np.bool_)
        places = np.where((topics >= 0) & (self._keys[places] == keys), places, -1)
        offsets = batch.column("queueOffset").to_numpy()
        inside = (offsets >= self._starts[places]) & (offsets < self._ends[places]) & (places >= 0)
        return places, inside


def _inside(batch: pa.RecordBatch, exact: Exact) -> pa.Array:
    """Rows whose offset is within the bounds of their queue, or whose queue has none."""
    places, inside = _Wanted(exact).find(batch)
    return pa.array(inside | (places < 0))


def _has_key(keys: pa.StringArray, wanted: Sequence[str]) -> pa.Array:
    """Whether one of the space-separated keys is wanted."""
    padded = pc.binary_join_element_wise("", keys, "", " ")
    found = None
    for key in wanted:
        hit = pc.match_substring(padded, f" {key} ")
        found = hit if found is None else pc.or_(found, hit)
    return found


# ---------------------------------------------------------------- stores without queues


def _read_walked(
    store: Store, partition: Partition, read: Read, loss: LossRule
) -> Iterator[pa.RecordBatch]:
    """Walks the files; topics, offsets and times are looked at in the rows."""
    for low, high in partition.ranges:
        file = store.log_file_of(low)
        if file is None:
            name = store.missing_file(low)
            loss.lost("a commit log file was deleted before it was read", name, low)
            continue
        try:
            opened = store.open_log(file)
        except FileNotFoundError:
            loss.lost("a commit log file was deleted before it was read", file.path, low)
            continue
        opened.advise(sequential=True)
        data = opened.read(low - file.first, min(file.size, high - file.first))
        starts, sizes = walk(data, low, partial(_report_torn, loss, file))
        helpers = ["topic", "queueId", "queueOffset", "storeTimestamp"]
        for begin, end in _cut(starts, sizes, read, _SPAN_MAX):
            batch = _decode_filtered(
                store, data, starts[begin:end], None, read, loss, file, first=low, extra=helpers
            )
            batch = batch.filter(_walk_mask(batch, partition)).select(list(read.columns))
            if batch.num_rows:
                yield batch


def _report_torn(loss: LossRule, file: FileSpan, position: int, reason: str) -> None:
    loss.lost(reason, file.path, position)


def _walk_mask(batch: pa.RecordBatch, partition: Partition) -> pa.Array:
    """Rows of the wanted topics, offsets and times."""
    if partition.queues:
        queues = {(q.topic, q.queue_id): (q.start, q.end) for q in partition.queues}
        return pa.array(_Wanted(queues).find(batch)[1])
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
    """Rows behind a start, or before an end. A start "latest" leaves nothing."""
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
