"""Folders of test runs, in memory or on the disk: removed at the end, or, after a kill, by the next run.

    /dev/shm/pocketmq-run-KIND-XXXXXXXX/     locked (flock) by the process that made it, while that lives
        store/                               what is handed out

1. Before one is made, those of the same user that no process holds are removed. Files in /dev/shm are RAM: a
   run that was killed would keep its share of it until the machine restarts.
2. It gets its name after it is locked, so that a run that begins at the same time does not take it for one of
   a dead process.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = "memory"
TEMPORARY = "temporary"

_PREFIX = "pocketmq-run-"
_MEMORY_FOLDER = "/dev/shm"
_MEMORY_FREE_MIN = 256 << 20


class RunFolder:
    """One such folder.

    path: what is handed out. lock: the descriptor that holds it, for a child process that uses it as well.
    """

    def __init__(self, where: str, kind: str = "test") -> None:
        """where: MEMORY, for one in memory if the machine supports that, or TEMPORARY. Raises: OSError."""
        base = _base(where)
        remove_abandoned(base)
        fresh = tempfile.mkdtemp(prefix="pocketmq-new-", dir=base)
        self.lock = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self._root = os.path.join(
            base, f"{_PREFIX}{kind}-{os.path.basename(fresh).rpartition('-')[2]}"
        )
        os.rename(fresh, self._root)
        self.path = os.path.join(self._root, "store")
        os.mkdir(self.path)

    def remove(self) -> None:
        """Remove it, whatever is in it."""
        shutil.rmtree(self._root, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def remove_abandoned(base: str) -> None:
    """Remove the folders in `base` that no process holds any more (invariant 1). Raises nothing."""
    for root in Path(base).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if root.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(root, ignore_errors=True)
            finally:
                os.close(descriptor)


def _base(where: str) -> str:
    if where == MEMORY and _has_memory_folder():
        return _MEMORY_FOLDER
    return tempfile.gettempdir()


def _has_memory_folder() -> bool:
    # Containers often have 64 MiB there: too little for large bodies.
    try:
        free = shutil.disk_usage(_MEMORY_FOLDER).free
    except OSError:
        return False
    return free >= _MEMORY_FREE_MIN and os.access(_MEMORY_FOLDER, os.W_OK)
