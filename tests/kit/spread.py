"""Which worker process runs which file of tests, so that all workers end at the same time.

A file stays whole, for its fixtures. Three things differ from the plain `--dist loadfile`:

1. The folders that cost most come first, and the many short files of the others last, where they fill what
   is left of each worker's time. xdist sorts by the number of tests, which puts the few long ones at the end.
2. A worker stays in a folder while there is something left in it, and goes where no other worker is.
3. Where each worker pays for JVMs, a browser or a Spark session of its own, a second worker comes only when
   there is nothing else left: half a minute of CPU each.
"""

from collections.abc import Mapping

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOMS = (
    *("interop", "spark", "crash", "faults", "console", "house", "testing"),
    *("soak", "simulation", "e2e", "cli"),
)
"""Folders of tests whose files are long, the longest sum first."""
DEAR = ("interop", "spark", "console")
"""Those of them that a worker enters at a price."""


def room_of(path: str) -> str:
    """The costly folder that a file of tests is in, or "".

    >>> room_of("tests/spark/test_sink.py"), room_of("tests/store/test_open.py")
    ('spark', '')
    """
    parts = path.split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 and parts[1] in ROOMS else ""


def next_file(waiting: Mapping[str, object], mine: str, others: set[str]) -> str:
    """The file for a worker that was last in room `mine`, while the other workers are in `others`.

    >>> files = {"tests/interop/a.py": 1, "tests/spark/b.py": 1, "tests/store/c.py": 1}
    >>> next_file(files, "", {"interop"}), next_file(files, "interop", {"spark"})
    ('tests/spark/b.py', 'tests/interop/a.py')
    >>> next_file(files, "", {"interop", "spark"})
    'tests/store/c.py'
    >>> next_file({"tests/interop/a.py": 1, "tests/spark/b.py": 1}, "", {"interop", "spark"})
    'tests/interop/a.py'
    """

    def rank(path: str) -> tuple[bool, bool, bool, bool, int]:
        room = room_of(path)
        crowded = room != mine and room in others
        return (
            crowded and room in DEAR,
            not room,
            room != mine,
            crowded,
            ROOMS.index(room) if room else 0,
        )

    return min(waiting, key=rank)


class ByRoom(LoadFileScheduling):  # type: ignore[misc]  # xdist says nothing of its types
    """Hands out whole files by the two rules above."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._rooms: dict[WorkerController, str] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        busy = {room for other, room in self._rooms.items() if other is not node}
        path = next_file(self.workqueue, self._rooms.get(node, ""), busy)
        self._rooms[node] = room_of(path)
        self.workqueue.move_to_end(path, last=False)
        super()._assign_work_unit(node)
