"""ScheduleTable: all schedules, as they were at a place of the log; config/schedules.json.

    {"changes": offset in rmq_sys_POCKETMQ_SCHEDULES of the first change that is not in the table,
     "schedules": [rows as ScheduleRow.to_json has them]}

The file may be older than the log, never newer: it is saved once the log is on the disk up to `end`. What it
lacks is in the log (service.py).
Owner: ScheduleService.
"""

import heapq
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.store import ConfigFile

if TYPE_CHECKING:
    from pocketmq.broker.schedules.schedule import ScheduleRow

log = logging.getLogger(__name__)


class ScheduleTable(ConfigManager):
    """Attributes: rows by name; changes (see above); end: of the log, as far as the rows refer to it."""

    def __init__(self, file: ConfigFile) -> None:
        super().__init__(file)
        self.rows: dict[str, ScheduleRow] = {}
        self.changes = 0
        self.end = 0
        # (next_ms, name); of rows that changed since, old entries remain until they come up.
        self._heap: list[tuple[int, str]] = []

    def to_json(self) -> dict[str, Any]:
        return {"changes": self.changes, "schedules": [row.to_json() for row in self.rows.values()]}

    def from_json(self, data: Any) -> None:
        """Replace the rows by those of the file, or of a master; nothing is written if they are the same."""
        if not isinstance(data, Mapping):
            return
        rows: dict[str, Any] = {}
        for row in data.get("schedules") or ():
            # A start without schedules is quicker without it.
            from pocketmq.broker.schedules.schedule import ScheduleRow
            from pocketmq.model.schedule import ScheduleIllegal

            try:
                found = ScheduleRow.from_json(row)
            except ScheduleIllegal as error:
                log.error("skipped a schedule that cannot be read row=%.200r reason=%s", row, error)
                continue
            rows[found.name] = found
        changes = int(data.get("changes", 0))
        if (changes, rows) == (self.changes, self.rows):
            return
        self.changes = changes
        self.rows.clear()
        self._heap.clear()
        for each in rows.values():
            self.put(each)

    def put(self, row: "ScheduleRow") -> None:
        """Add a schedule, or replace that of its name."""
        self.rows[row.name] = row
        if row.next_ms is not None:
            heapq.heappush(self._heap, (row.next_ms, row.name))
        if len(self._heap) > 2 * len(self.rows) + 64:
            self._heap = [
                (each.next_ms, each.name) for each in self.rows.values() if each.next_ms is not None
            ]
            heapq.heapify(self._heap)
        self.dirty = True

    def remove(self, name: str) -> None:
        """Remove a schedule, if there is one of this name."""
        self.rows.pop(name, None)
        self.dirty = True

    def first(self) -> "ScheduleRow | None":
        """Return the schedule that comes next; None if none does."""
        while self._heap:
            next_ms, name = self._heap[0]
            row = self.rows.get(name)
            if row is not None and row.next_ms == next_ms:
                return row
            heapq.heappop(self._heap)
        return None
