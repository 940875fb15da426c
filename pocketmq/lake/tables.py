"""What a copy needs of tables, whatever their format: iceberg.py and delta.py give it.

A commit holds rows and the table's position together, and is made onto the version that was read: if the
table has another one by then, it fails with LostRace, and nothing is written.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa

from pocketmq.lake.position import Position
from pocketmq.lake.source import LogWindow


class LostRace(Exception):
    """Another process has committed to a table first."""


class OpenTable(Protocol):
    """One table at the version that was read last."""

    @property
    def name(self) -> str: ...

    def refresh(self) -> None:
        """Read the newest version."""
        ...

    def position(self) -> Position: ...

    def add_columns(self, columns: pa.Schema) -> None:
        """Add the columns that the table lacks. Raises: IllegalArgument for others of the same name."""
        ...

    def write(self, rows: pa.Table) -> list[Any]:
        """Write rows to files, one or more for each partition; return their entries, which a commit names."""
        ...

    def commit(self, files: list[Any], position: Position) -> None:
        """Add files with the position that the table has with them. Raises: LostRace."""
        ...

    def count(self, topic: str, window: LogWindow) -> int:
        """Return the number of a topic's rows in a window."""
        ...

    def rows(self, topic: str, window: LogWindow) -> pa.Table:
        """Return a topic's rows in a window, with the columns of columns.NAMES."""
        ...


class LakeTables(Protocol):
    """The tables of one warehouse."""

    def known(self, topics: Iterable[str]) -> set[str]:
        """Return those of the topics that have a table."""
        ...

    def find(self, topic: str) -> OpenTable | None: ...

    def open(self, topic: str, partitions: tuple[str, ...] | None = None) -> OpenTable:
        """Return the table of a topic, created if need be.

        partitions: what partitions.py knows; None: by day, and a table that is there as it is.
        Raises: IllegalArgument for a table that is partitioned in another way.
        """
        ...
