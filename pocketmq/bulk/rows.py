"""Turns records with known places into rows: cut into batches, decoded, filtered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.decode import IndexedRecords, decode, records_with
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Filters
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.files.layout import FileSpan

# Places and properties of a batch stay in the second-level cache: with 65,536 rows tags and properties cost
# a third more.
ROWS_MAX = 1 << 15
# Offset bounds per (topic, queue): records that hold several messages reach over them.
Exact = dict[tuple[str, int], tuple[int, int]]


@dataclass(frozen=True)
class Read:
    """Options for turning records into rows.

    ordered: as in the log, also where only the index is read. by_queue: where an index says the queues, each
    batch by topic and queue in place of that; a queue's rows stay as in the log.
    """

    columns: tuple[str, ...]
    filters: Filters = field(default_factory=Filters)
    decompress: bool = True
    verify_crc: bool = False
    batch_bytes: int = 8 << 20
    ordered: bool = True
    by_queue: bool = False


def needed(read: Read) -> list[str]:
    """Return the columns to decode: the wanted ones and those that filters need."""
    extra: list[str] = []
    if read.filters.tags:
        extra.append("tags")
    if read.filters.keys:
        extra.append("keys")
    if read.filters.start_ms is not None or read.filters.end_ms is not None:
        extra.append("storeTimestamp")
    return [*read.columns, *(c for c in extra if c not in read.columns)]


def cut(positions: Int64s, sizes: Int64s, read: Read, span_max: int) -> Iterator[tuple[int, int]]:
    """Yield rows begin <= i < end of each batch: by bytes if bodies are copied, else by rows."""
    heavy = "body" in read.columns
    total = np.cumsum(sizes)
    begin = 0
    while begin < len(positions):
        end = min(begin + ROWS_MAX, len(positions))
        if heavy:
            base = int(total[begin] - sizes[begin])
            end = min(end, int(np.searchsorted(total, base + read.batch_bytes, side="right")))
        end = min(end, int(np.searchsorted(positions, positions[begin] + span_max)))
        end = max(end, begin + 1)
        yield begin, end
        begin = end


def decode_filtered(
    store: StoreSnapshot,
    data: pa.Buffer,
    starts: Int64s,
    known: IndexedRecords | None,
    read: Read,
    loss: LossRule,
    file: FileSpan,
    *,
    first: int = 0,
    may_hold_batches: bool = False,
    exact: Exact | None = None,
    extra: Sequence[str] = (),
) -> pa.RecordBatch:
    """Decode and filter records of a commit log file.

    first: position in the log of data's first byte, where `known` does not say it.
    """
    base = (int(known.positions[0]) - int(starts[0])) if known is not None else first

    def on_bad(place: int, reason: str) -> None:
        loss.lost(reason, file.path, base + place)

    filters = read.filters
    columns = _with_helpers(read, exact, extra)
    # Rows that a code or an offset already chose are decoded at once; else the filter's columns first.
    in_time = filters.start_ms is not None or filters.end_ms is not None
    if filters.keys and not may_hold_batches:
        starts, known = records_with(
            data, starts, lambda texts: _holds_one(texts, filters.keys),
            on_bad=on_bad, known=known, verify_crc=read.verify_crc,
        )  # fmt: skip
    elif (in_time or (filters.tags and known is None)) and not may_hold_batches:
        look = decode(
            data, starts, [*needed(replace(read, columns=())), "commitLogOffset"], on_bad=on_bad,
            broker_name=store.root.broker_name, known=known, verify_crc=read.verify_crc,
        )  # fmt: skip
        kept = look.column("commitLogOffset").filter(_mask(look, filters, None))
        rows = np.isin(starts + base, kept.to_numpy())
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
    data: pa.Buffer,
    starts: Int64s,
    read: Read,
    loss: LossRule,
    broker_name: str,
    exact: Exact,
    *,
    others: bool = False,
) -> pa.RecordBatch:
    """Decode and filter records that a broker sent: replies to pulls, concatenated.

    others: whether records of queues that `exact` does not name are rows; else they are a loss.
    """

    def on_bad(place: int, reason: str) -> None:
        loss.lost(f"broker {broker_name} sent an invalid record: {reason}", "reply", place)

    batch = decode(
        data, starts, _with_helpers(read, exact, ()), on_bad=on_bad, broker_name=broker_name,
        unpack=read.decompress, verify_crc=read.verify_crc,
    )  # fmt: skip
    places, inside = WantedOffsets(exact).find(batch)
    foreign = places < 0
    if foreign.any() and not others:
        (row,) = batch.slice(int(np.argmax(foreign)), 1).select(["topic", "queueId"]).to_pylist()
        loss.lost(
            f"broker {broker_name} answered with {int(foreign.sum())} records that were not asked for, of "
            f"topic {row['topic']!r}, queue {row['queueId']}"
        )
    mask = pc.and_(
        _mask(batch, read.filters, None), pa.array(inside | foreign if others else inside)
    )
    return batch.filter(mask).select(list(read.columns))


def _with_helpers(read: Read, exact: Exact | None, extra: Sequence[str]) -> list[str]:
    columns = needed(read)
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


class WantedOffsets:
    """Offset bounds of many queues, compared with many rows at once."""

    def __init__(self, bounds: Exact) -> None:
        self._topics = pa.array(list(dict.fromkeys(t for t, _ in bounds)), pa.string())
        numbers = {topic: n for n, topic in enumerate(self._topics.to_pylist())}
        table = np.array(
            sorted((numbers[t] << 32 | q, *limits) for (t, q), limits in bounds.items()), np.int64
        ).reshape(-1, 3)
        self._keys, self._starts, self._ends = table.T.copy()

    def find(self, batch: pa.RecordBatch) -> tuple[Int64s, Bools]:
        """Return for each row of topic, queueId and queueOffset: the queue's number in key order, or -1 if
        it is not named; and whether the offset is within its bounds.
        """
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
    """Return the rows whose offset is within the bounds of their queue, or whose queue has none."""
    places, inside = WantedOffsets(exact).find(batch)
    return pa.array(inside | (places < 0))


def _holds_one(texts: pa.BinaryArray, wanted: Sequence[str]) -> Bools:
    """Return True for texts that contain a wanted one; some others may be included.

    Searching all texts at once costs a fraction of extracting the keys from each.
    """
    found = np.zeros(len(texts), np.bool_)
    _, places, data = texts.buffers()
    if not len(texts) or data is None:
        return found
    bounds = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    joined = bytes(data)
    for word in wanted:
        at = joined.find(word.encode(), bounds[0], bounds[-1])
        while at >= 0:
            found[np.searchsorted(bounds, at, side="right") - 1] = True
            at = joined.find(word.encode(), at + 1, bounds[-1])
    return found


def _has_key(keys: pa.StringArray, wanted: Sequence[str]) -> pa.Array:
    """Return True where one of the space-separated keys is wanted."""
    padded = pc.binary_join_element_wise("", keys, "", " ")
    found = None
    for key in wanted:
        hit = pc.match_substring(padded, f" {key} ")
        found = hit if found is None else pc.or_(found, hit)
    return found
