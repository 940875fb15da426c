"""The files of `config`: whether they can be read, and whether their offsets are in their queues."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pocketmq.files.side_file import SideFileBroken, file_of_offsets, read_or_backup
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.store.findings import FindingCode, Problem, problem

_DELAY_OFFSETS = "delayOffset.json"
QueueEnds = Mapping[tuple[str, int], int]


class ConfigChecks:
    """Checks of the folder's JSON files. files: how many there are."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "config"
        self._paths = sorted(self._folder.glob("*.json"))
        self.files = len(self._paths)

    def check(self) -> Iterator[Problem]:
        """Find files that cannot be read."""
        for path in self._paths:
            where, size = f"config/{path.name}", path.stat().st_size
            try:
                _, came_from = read_or_backup(str(path), _content)
            except (OSError, SideFileBroken) as error:
                yield problem(FindingCode.FILE_LOST, where, size, str(error))
                continue
            if came_from is None:
                yield problem(FindingCode.FILE_EMPTY, where, size)
            elif came_from != str(path):
                yield problem(FindingCode.FILE_BROKEN, where, size)

    def check_offsets(self, ends: QueueEnds) -> Iterator[Problem]:
        """Find offsets beyond the end of their queue. ends: as QueueChecks has them."""
        for key, queue_id, offset, end in offsets_ahead(self._offsets(), ends):
            topic, _, group = key.partition("@")
            what = f"group {group} is at offset {offset} of a queue that ends at {end}"
            yield problem(FindingCode.OFFSET_AHEAD, f"{topic} queue {queue_id}", offset - end, what)
        table = self._table(_DELAY_OFFSETS)
        for level, offset in sorted(_numbers(table).items()):
            end = ends.get((SCHEDULE_TOPIC, level - 1), 0)
            if offset > end:
                what = f"level {level} is at offset {offset} of a queue that ends at {end}"
                yield problem(
                    FindingCode.DELAY_AHEAD, f"config/{_DELAY_OFFSETS}", offset - end, what
                )

    def _offsets(self) -> dict[str, Any]:
        try:
            return self._table(file_of_offsets(str(self._folder), os.listdir(self._folder)))
        except FileNotFoundError:
            return {}

    def _table(self, name: str) -> dict[str, Any]:
        try:
            value, _ = read_or_backup(str(self._folder / name), _content)
        except (OSError, SideFileBroken):
            return {}
        table = value.get("offsetTable") if isinstance(value, dict) else None
        return table if isinstance(table, dict) else {}


def offsets_ahead(table: Mapping[str, Any], ends: QueueEnds) -> Iterator[tuple[str, int, int, int]]:
    """Yield "TOPIC@GROUP", queue id, offset and the queue's end, of offsets beyond that end.

    Queues without files and records are left out: their topic may be deleted.
    """
    for key, queues in table.items():
        topic = key.partition("@")[0]
        for queue_id, offset in _numbers(queues).items():
            end = ends.get((topic, queue_id))
            if end is not None and offset > end:
                yield key, queue_id, offset, end


def _numbers(table: Any) -> dict[int, int]:
    """Return those of a table's rows that are numbers; JSON has keys as texts."""
    if not isinstance(table, dict):
        return {}
    return {
        int(key): value
        for key, value in table.items()
        if str(key).isdecimal() and isinstance(value, int)
    }


def _content(path: str) -> bytes:
    return Path(path).read_bytes()
