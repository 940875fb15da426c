"""The position of a table: which messages it holds. Committed with the rows, in the snapshot's summary.

    pocketmq.position   {"T": {"broker-a": {"0": [offset, place]}}}
    pocketmq.heads      {"broker-a": [place, digest]}

A mark [offset, place] says that the table holds all messages of the queue before `offset`, and that the last
of them is at `place` in the broker's commit log (bytes).

1. A queue whose record at `offset - 1` is elsewhere than at `place` belongs to a topic that was deleted and
   created again: its messages behind `place` are new, whatever their offsets.
2. A head is the digest of the first bytes of the last record that the table holds of a broker. A log that
   has another record there was truncated or replaced; a table of it cannot be continued.
3. Other writers (a compaction by Spark) commit snapshots without a position: that of the nearest ancestor
   holds. Where none is left, because snapshots were expired, the rows themselves say it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Bools, Int64s

if TYPE_CHECKING:
    from pyiceberg.table import Table

MARKS_KEY = "pocketmq.position"
HEADS_KEY = "pocketmq.heads"
_KEYS = ["topic", "brokerName", "queueId"]
_LAST = ["commitLogOffset", "queueOffset"]


class Mark(NamedTuple):
    """Messages of a queue before `offset` are in the table; the last one is at `place` in the log, bytes."""

    offset: int
    place: int


class Head(NamedTuple):
    """The record at `place` in a broker's log: digest of its first bytes."""

    place: int
    digest: str


Marks = dict[int, Mark]


@dataclass
class Position:
    """Marks by topic, broker and queue; heads by broker."""

    marks: dict[str, dict[str, Marks]] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)

    def of(self, topic: str, broker: str) -> Marks:
        """Return the marks of a topic's queues at a broker."""
        return self.marks.get(topic, {}).get(broker, {})

    def last_place(self, broker: str) -> int:
        """Return the place of the last record of a broker; -1 without one."""
        marks = (queues.get(broker, {}) for queues in self.marks.values())
        return max((m.place for each in marks for m in each.values()), default=-1)

    def add(self, rows: pa.RecordBatch, topic: str, broker: str) -> pa.RecordBatch:
        """Advance the marks of a topic at a broker by rows in the order of its queues.

        Returns: the rows that the table does not hold yet.
        """
        marks = self.marks.setdefault(topic, {}).setdefault(broker, {})
        queues = rows.column("queueId").to_numpy()
        places = rows.column("commitLogOffset").to_numpy()
        known = _is_known(queues, places, marks)
        if known.any():
            rows = rows.filter(pa.array(~known))
            queues, places = queues[~known], places[~known]
        offsets = rows.column("queueOffset").to_numpy()
        # The first of the rows from behind is the last of each queue.
        found, behind = np.unique(queues[::-1], return_index=True)
        for queue, at in zip(found.tolist(), (len(queues) - 1 - behind).tolist(), strict=True):
            marks[queue] = Mark(int(offsets[at]) + 1, int(places[at]))
        return rows

    def summary(self) -> dict[str, str]:
        """Return the properties of a snapshot."""
        marks = {
            topic: {
                broker: {str(queue): list(mark) for queue, mark in sorted(queues.items())}
                for broker, queues in sorted(brokers.items())
            }
            for topic, brokers in sorted(self.marks.items())
        }
        heads = {broker: list(head) for broker, head in sorted(self.heads.items())}
        return {MARKS_KEY: _compact(marks), HEADS_KEY: _compact(heads)}

    @classmethod
    def of_summary(cls, summary: Mapping[str, str]) -> "Position | None":
        """Return the position of a snapshot; None if it has none."""
        text = summary.get(MARKS_KEY)
        if text is None:
            return None
        marks = {
            topic: {
                broker: {int(queue): Mark(*mark) for queue, mark in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in json.loads(text).items()
        }
        heads = json.loads(summary.get(HEADS_KEY) or "{}")
        return cls(marks, {broker: Head(*head) for broker, head in heads.items()})


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _is_known(queues: Int64s, places: Int64s, marks: Marks) -> Bools:
    """Return the rows that are not behind the marks of their queues."""
    known: Bools = np.zeros(len(queues), np.bool_)
    if not marks or not len(places) or int(places.min()) > max(m.place for m in marks.values()):
        return known
    for queue in np.unique(queues).tolist():
        mark = marks.get(queue)
        if mark is not None:
            known |= (queues == queue) & (places <= mark.place)
    return known


def position_of(table: "Table") -> Position:
    """Return the position of a table's current snapshot (invariant 3)."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return Position()
    while snapshot is not None:
        found = Position.of_summary(snapshot.summary or {})
        if found is not None:
            return found
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    with table.scan(selected_fields=(*_KEYS, *_LAST)).to_arrow_batch_reader() as batches:
        return position_of_rows(batches)


def position_of_rows(batches: Iterable[pa.RecordBatch]) -> Position:
    """Return the position that the rows of a table say: the last record of each queue."""
    position = Position()
    for batch in batches:
        rows = pa.Table.from_batches([batch]).sort_by([(n, "ascending") for n in (*_KEYS, *_LAST)])
        found = rows.group_by(_KEYS, use_threads=False).aggregate([(n, "last") for n in _LAST])
        for row in found.to_pylist():
            queues = position.marks.setdefault(row["topic"], {})
            marks = queues.setdefault(row["brokerName"], {})
            mark = Mark(row["queueOffset_last"] + 1, row["commitLogOffset_last"])
            if row["queueId"] not in marks or marks[row["queueId"]].place <= mark.place:
                marks[row["queueId"]] = mark
    return position
