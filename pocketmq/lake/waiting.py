"""WaitingRows: rows put in the order of broker, queue and offset without a copy of them all.

A batch is sorted when it comes, while the processor's cache has it. Its rows of one queue are then a slice,
and the slices of a queue, batch after batch, are mostly in order.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Int64s

_SLICE_ROWS = 64


class WaitingRows:
    """Rows of one table. Owner of the slices."""

    def __init__(self) -> None:
        self._slices: dict[tuple[str, int], list[pa.RecordBatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._slices)

    def add(self, rows: pa.RecordBatch, broker: str) -> None:
        """Add rows of one broker."""
        if not rows.num_rows:
            return
        rows = _sorted(rows)
        queues = rows.column("queueId").to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(queues)) + 1).tolist(), len(queues)]
        for low, high in pairwise(starts):
            key = (broker, int(queues[low]))
            self._slices.setdefault(key, []).append(rows.slice(low, high - low))

    def add_mixed(self, rows: pa.Table) -> None:
        """Add rows of any brokers."""
        for batch in rows.to_batches():
            brokers = batch.column("brokerName")
            for broker in pc.unique(brokers).to_pylist():
                self.add(batch.filter(pc.equal(brokers, broker)), broker)

    def taken(self) -> pa.Table:
        """Return all rows in order, and forget them. At least one must have been added."""
        slices, self._slices = self._slices, {}
        ordered = [batch for key in sorted(slices) for batch in _in_order(slices[key])]
        rows = pa.Table.from_batches(ordered)
        # Many queues: to write slices of a few rows costs more than a copy.
        return rows if len(ordered) * _SLICE_ROWS < rows.num_rows else rows.combine_chunks()


def _in_order(slices: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the slices of a queue; sorted where they overlap, as those of a topic that was made again."""
    offsets = [batch.column("queueOffset") for batch in slices]
    ends = [(one[0].as_py(), one[len(one) - 1].as_py()) for one in offsets]
    if all(last < first for (_, last), (first, _) in pairwise(ends)):
        yield from slices
    else:
        yield _sorted(pa.Table.from_batches(slices).combine_chunks().to_batches()[0])


def _sorted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of one broker by queue, offset and place in the log."""
    names = ("commitLogOffset", "queueOffset", "queueId")
    order: Int64s = np.lexsort([rows.column(name).to_numpy() for name in names])
    if (np.diff(order) == 1).all():
        return rows
    return rows.take(pa.array(order))
