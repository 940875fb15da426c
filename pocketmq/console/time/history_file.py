"""HistoryFile: keeps the charts' history across restarts, in one file that never grows.

1. One console owns the file, by a lock that ends with its process; others keep their history in memory.
2. Changes are written in place without a sync: a power cut costs the last seconds of charts, and torn rows
   become gaps (history.py, invariant 4).
3. A disk that fails is logged once until _WELL_AGAIN writes in a row have worked: on a full one, those into
   blocks that the file has work on. The figures continue in memory.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pocketmq.console.time.history import IMAGE_SIZE, History

log = logging.getLogger(__name__)

NAME = "history"
_WELL_AGAIN = 1_000


@contextmanager
def kept_history(folder: str, interval_ms: int) -> Iterator[History]:
    """Open the history in a folder, creating it; in memory only without one, or if it cannot be used."""
    descriptor = None
    if folder:
        try:
            descriptor = _opened(Path(folder) / NAME)
        except OSError as error:
            log.warning(
                "cannot keep charts in a file; they start again with this process: %s", error
            )
    if descriptor is None:
        yield History(interval_ms)
        return
    try:
        yield History(interval_ms, os.pread(descriptor, IMAGE_SIZE + 1, 0), _Writer(descriptor))
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Open and lock the file. Raises: OSError, including BlockingIOError if another console has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size != IMAGE_SIZE:
            os.ftruncate(descriptor, IMAGE_SIZE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Writer:
    """Writes changes in place (invariants 2 and 3)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._well_count = _WELL_AGAIN

    def __call__(self, offset: int, data: bytes) -> None:
        try:
            os.pwrite(self._descriptor, data, offset)
        except OSError as error:
            if self._well_count >= _WELL_AGAIN:
                log.warning(
                    "cannot write charts to their file; they are in memory only until "
                    "that works again: %s",
                    error,
                )
            self._well_count = 0
        else:
            self._well_count += 1
