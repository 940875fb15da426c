"""LakeTable: one table that is written: rows wait, become files, and are committed with a position.

1. Rows and position are one commit: a process that is killed before it has written nothing that a reader
   sees, one that is killed after it finds its position when it starts again. Files without a commit are
   removed some days later (expire.py).
2. A commit is made only onto the version whose position the rows continue. If another writer was quicker
   (a compaction), it is repeated onto the new version, as long as that has the same position.
3. Rows are appended to a queue in order: those of a commit continue what was committed before.
"""

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pocketmq.lake.position import Position
from pocketmq.lake.tables import LostRace, OpenTable
from pocketmq.lake.waiting import WaitingRows
from pocketmq.remoting.errors import PocketMQError

_ATTEMPTS = 5


class TableInUse(PocketMQError):
    """Another process has written the same messages to a table."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"table {name} was written by another process at the same time: run one `pocketmq lake` at a time"
        )


class LakeTable:
    """See the head of the file. Owner of the table's position and of the rows that wait."""

    def __init__(self, table: OpenTable, clock: Callable[[], float] = time.monotonic) -> None:
        self.table = table
        self.name = table.name
        #: What the committed rows and those that wait are, together.
        self.position = table.position()
        self.committed = Position.of_summary(self.position.summary())
        #: Bytes of the rows that wait in memory.
        self.waiting_bytes = 0
        #: Bytes of the rows in files without a commit.
        self.written_bytes = 0
        self._clock = clock
        self._waiting = WaitingRows()
        self._files: list[Any] = []
        self._since: float | None = None

    @property
    def age_s(self) -> float:
        """Return for how long the oldest row without a commit has waited, in seconds; 0 without one."""
        return 0.0 if self._since is None else self._clock() - self._since

    def add(self, rows: pa.RecordBatch, topic: str, broker: str) -> int:
        """Add rows of one topic and broker, in the order of its queues; return how many were new."""
        rows = self.position.add(rows, topic, broker)
        count: int = rows.num_rows
        if count:
            if self._since is None:
                self._since = self._clock()
            self._waiting.add(rows, broker)
            self.waiting_bytes += rows.nbytes
        return count

    def write(self) -> None:
        """Write the rows that wait to files, one for each partition."""
        if not self._waiting:
            return
        rows = self._waiting.taken()
        self.written_bytes += self.waiting_bytes
        self.waiting_bytes = 0
        self._files += self.table.write(rows)

    def commit(self) -> int:
        """Commit all rows that were added; return the number of files. Raises: TableInUse."""
        self.write()
        files = self._files
        if not files:
            return 0
        for attempt in range(_ATTEMPTS):
            try:
                self.table.commit(files, self.position)
                break
            except LostRace:
                self.table.refresh()
                if attempt + 1 == _ATTEMPTS or self.table.position() != self.committed:
                    raise TableInUse(self.name) from None
        self.committed = Position.of_summary(self.position.summary())
        self._files, self.written_bytes, self._since = [], 0, None
        return len(files)
