"""Brings tables up to date with a source: the work of `pocketmq lake`, one round or many.

Rows of many topics come mixed, as in the log. They wait in memory, at most WAITING_BYTES together, and become
files and commits table by table; see table.py for what makes that exactly once.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pocketmq.bulk.errors import BulkError
from pocketmq.lake.columns import table_name
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.lake.maintain import Maintained, Upkeep, maintain
from pocketmq.lake.position import Head, Position
from pocketmq.lake.source import LogWindow, Rows, with_bodies
from pocketmq.lake.table import LakeTable
from pocketmq.lake.tables import LakeTables
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pocketmq.bulk.bodies.columns import BodyColumns

#: Of all tables together: sorting a table's rows takes as much again for a moment.
WAITING_BYTES = 96 << 20
#: A commit costs some files of metadata, and kill -9 costs what was not committed.
COMMIT_BYTES = 1 << 29
COMMIT_S = 30.0


class SourcePlan(Protocol):
    """What a source holds at one time."""

    @property
    def topics(self) -> list[str]: ...

    def work(self, positions: Mapping[str, Position]) -> list[Any]: ...

    def rows(self, part: Any) -> Iterator[Rows]: ...

    def windows(self, parts: list[Any]) -> list[LogWindow]:
        """Return the parts as pieces that can be compared with tables, in order."""
        ...

    @property
    def reaches_end(self) -> bool:
        """Return True if nothing that the source holds is left out behind the last part."""
        ...


class RowSource(Protocol):
    """Where rows come from."""

    def plan(self) -> SourcePlan: ...

    def head(self, broker: str, place: int) -> Head | None: ...

    def make_durable(self) -> None:
        """Flush the log that rows were read from: called before these rows are committed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """Limits of memory and of commits, see above. commit_s: age of a row when it is committed, seconds."""

    waiting_bytes: int = WAITING_BYTES
    commit_bytes: int = COMMIT_BYTES
    commit_s: float = COMMIT_S


@dataclass
class AddedRows:
    """What rounds have added. rows: by table."""

    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    commits: int = 0

    @property
    def total(self) -> int:
        return sum(self.rows.values())


Watch = Callable[[Iterable[Any], int], Iterator[Any]]
"""Passes the parts of a round on, and shows how many are done."""


class LakeCopy:
    """The tables of one warehouse, kept up with one source. Owner of the open tables."""

    def __init__(
        self,
        tables: LakeTables,
        source: RowSource,
        limits: Limits | None = None,
        body: "BodyColumns | None" = None,
        partitions: tuple[str, ...] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.copied = AddedRows()
        self._partitions = partitions
        self._warehouse = tables
        self._source = source
        self._limits = limits or Limits()
        self._body = body
        self._clock = clock
        self._tables: dict[str, LakeTable] = {}

    def round(self, watch: Watch = lambda parts, total: iter(parts)) -> int:
        """Add what the source holds now; return the number of rows. Raises: what source and tables raise."""
        before = self.copied.total
        plan = self._source.plan()
        known = self._warehouse.known(plan.topics)
        positions = {topic: self._table(topic).position for topic in known}
        parts = plan.work(positions)
        try:
            for part in watch(parts, len(parts)):
                for rows in plan.rows(part):
                    self._add(rows)
                self._commit_old()
        except BulkError:
            # What came before the damage is whole.
            self._commit_all()
            raise
        self._commit_all()
        return self.copied.total - before

    def maintain(self, upkeep: Upkeep, topics: Iterable[str] = ()) -> Maintained:
        """Maintain the tables of some topics or all, between two rounds.

        Raises: IllegalArgument for tables of Delta Lake, which have commands of their own.
        """
        if not isinstance(self._warehouse, IcebergTables):
            raise IllegalArgument(
                "--compact and --keep-snapshots are for Iceberg. OPTIMIZE and VACUUM of a Delta engine do the"
                " same; pocketmq lake continues behind them"
            )
        done = maintain(self._warehouse.catalog, upkeep, topics)
        for table in self._tables.values():
            table.table.refresh()
        return done

    def _add(self, rows: Rows) -> None:
        table = self._table(rows.topic)
        columns = rows.rows if self._body is None else with_bodies(rows.rows, self._body)
        added = table.add(columns, rows.topic, rows.broker)
        if added:
            self.copied.rows[table.name] = self.copied.rows.get(table.name, 0) + added
        self._make_room()

    def _commit_all(self) -> None:
        for table in self._tables.values():
            self._commit(table)

    def _table(self, topic: str) -> LakeTable:
        name = table_name(topic)
        if name not in self._tables:
            table = self._warehouse.open(topic, self._partitions)
            if self._body is not None:
                table.add_columns(self._body.schema)
            self._tables[name] = LakeTable(table, self._clock)
        return self._tables[name]

    def _make_room(self) -> None:
        while sum(t.waiting_bytes for t in self._tables.values()) > self._limits.waiting_bytes:
            max(self._tables.values(), key=lambda table: table.waiting_bytes).write()

    def _commit_old(self) -> None:
        for table in self._tables.values():
            large = table.written_bytes >= self._limits.commit_bytes
            if large or table.age_s >= self._limits.commit_s:
                self._commit(table)

    def _commit(self, table: LakeTable) -> None:
        if not table.age_s and not table.waiting_bytes and not table.written_bytes:
            return
        self._source.make_durable()
        position = table.position
        for broker in {b for brokers in position.marks.values() for b in brokers}:
            head = self._source.head(broker, position.last_place(broker))
            if head is not None:
                position.heads[broker] = head
        files = table.commit()
        self.copied.files += files
        self.copied.commits += bool(files)
