"""Compares tables with a source row by row, one piece of the log at a time: `pocketmq lake --check`.

compared    rows that are equal in every column
waiting     messages behind the tables' positions: the next copy adds them
older       rows of messages that the source no longer has: expired, or of a topic that was deleted
missing     messages that a table's position says it holds, and that it does not
extra       rows that no message of the source accounts for, such as one that is there twice
different   rows of which a column differs
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pocketmq.lake.columns import NAMES
from pocketmq.lake.copy import RowSource, SourcePlan
from pocketmq.lake.position import Position
from pocketmq.lake.source import LogWindow
from pocketmq.lake.tables import LakeTables, OpenTable

_SHOWN_MAX = 10
_KEY = ("queueId", "queueOffset", "commitLogOffset")
Key = tuple[int, int, int]


@dataclass
class Compared:
    """The result; see the head of the file. shown: some of the rows that are wrong, in words."""

    compared: int = 0
    waiting: int = 0
    older: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    shown: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def show(self, text: str) -> None:
        if len(self.shown) < _SHOWN_MAX:
            self.shown.append(text)


class Check:
    """One comparison of tables with a source. Changes nothing."""

    def __init__(self, tables: LakeTables, source: RowSource) -> None:
        self.result = Compared()
        self._warehouse = tables
        self._plan: SourcePlan = source.plan()
        self._tables: dict[str, tuple[OpenTable, Position] | None] = {}
        # The first record of each queue that the source has.
        self._firsts: dict[tuple[str, str, int], int] = {}

    def run(self, watch: Any = lambda parts, total: iter(parts)) -> Compared:
        """Compare everything. Raises: what the source raises."""
        windows = self._plan.windows(self._plan.work({}))
        for window in watch(windows, len(windows)):
            self._compare(window)
        for before, behind in _outside(windows):
            self.result.older += self._count(before)
            if self._plan.reaches_end and self._count(behind):
                self._compare(behind)
        return self.result

    def _count(self, window: LogWindow) -> int:
        """Return the number of rows in a window that the source has nothing of."""
        topics = window.topics or self._plan.topics
        found = [(topic, self._table(topic)) for topic in topics]
        return sum(one[0].count(topic, window) for topic, one in found if one is not None)

    def _compare(self, window: LogWindow) -> None:
        stored: dict[str, list[pa.RecordBatch]] = {}
        for part in window.parts:
            for topic, _, rows in self._plan.rows(part):
                stored.setdefault(topic, []).append(rows)
        for topic in window.topics or sorted({*self._plan.topics, *stored}):
            found = self._table(topic)
            batches = stored.get(topic, [])
            if found is None:
                self.result.waiting += sum(batch.num_rows for batch in batches)
                continue
            table, position = found
            if not batches and not position.of(topic, window.broker):
                continue
            wanted = self._copied(topic, window.broker, batches, position)
            held = _sorted(table.rows(topic, window))
            self._judge(topic, window.broker, _sorted(wanted), held)

    def _table(self, topic: str) -> tuple[OpenTable, Position] | None:
        if topic not in self._tables:
            table = self._warehouse.find(topic)
            self._tables[topic] = None if table is None else (table, table.position())
        return self._tables[topic]

    def _copied(
        self, topic: str, broker: str, batches: Iterable[pa.RecordBatch], position: Position
    ) -> pa.Table:
        """Return the rows that the table's position covers; count the others."""
        rows = pa.Table.from_batches(batches, _arrow_schema())
        marks = position.of(topic, broker)
        queues = rows.column("queueId").to_numpy()
        places = rows.column("commitLogOffset").to_numpy()
        inside = np.zeros(len(queues), np.bool_)
        for queue in np.unique(queues).tolist():
            here = queues == queue
            self._firsts.setdefault((topic, broker, queue), int(places[here].min()))
            if queue in marks:
                inside |= here & (places <= marks[queue].place)
        self.result.waiting += int((~inside).sum())
        return rows.filter(pa.array(inside))

    def _judge(self, topic: str, broker: str, wanted: pa.Table, held: pa.Table) -> None:
        if wanted.num_rows == held.num_rows and wanted.equals(held):
            self.result.compared += wanted.num_rows
            return
        where = f"topic {topic}, broker {broker}"
        waiting = dict(zip(_keys(wanted), range(wanted.num_rows), strict=True))
        for number, key in enumerate(_keys(held)):
            row = waiting.pop(key, None)
            if row is not None:
                self._judge_row(where, key, wanted.slice(row, 1), held.slice(number, 1))
                continue
            first = self._firsts.get((topic, broker, key[0]))
            if first is None or key[2] < first:
                self.result.older += 1
            else:
                self.result.extra += 1
                self.result.show(f"extra: {_named(where, key)}")
        self.result.missing += len(waiting)
        for key in list(waiting)[:_SHOWN_MAX]:
            self.result.show(f"missing: {_named(where, key)}")

    def _judge_row(self, where: str, key: Key, wanted: pa.Table, held: pa.Table) -> None:
        differing = [n for n in NAMES if not wanted.column(n).equals(held.column(n))]
        if differing:
            self.result.different += 1
            self.result.show(f"different in {', '.join(differing)}: {_named(where, key)}")
        else:
            self.result.compared += 1


def _named(where: str, key: Key) -> str:
    return f"{where}, queue {key[0]}, offset {key[1]}, position {key[2]}"


def _arrow_schema() -> pa.Schema:
    from pocketmq.bulk.columns.schema import schema_of

    return schema_of(NAMES)


def _outside(windows: Iterable[LogWindow]) -> Iterator[tuple[LogWindow, LogWindow]]:
    """Yield what is before and behind all windows, of each broker or queue."""
    together: dict[tuple[Any, ...], list[LogWindow]] = {}
    for one in windows:
        together.setdefault((one.broker, one.topics, one.queue), []).append(one)
    for each in together.values():
        low, high = min(one.low for one in each), max(one.high or 0 for one in each)
        yield (
            replace(each[0], parts=(), low=0, high=low),
            replace(each[0], parts=(), low=high, high=None),
        )


def _sorted(rows: pa.Table) -> pa.Table:
    rows = rows.combine_chunks()
    return rows.take(pa.array(np.lexsort([rows.column(n).to_numpy() for n in reversed(_KEY)])))


def _keys(rows: pa.Table) -> Iterator[Key]:
    return zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True)
