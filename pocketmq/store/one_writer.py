"""one_writer: one process at a time changes a file that several share.

1. The lock (flock) is on the file's folder, so that it outlives the replacement of the file and leaves
   nothing behind. A process that ends, however it does, gives it up.
2. It is held for one change: read, changed, written. The holder reads the file after it has the lock.
3. A holder that stands still costs the others WAIT_S, and an error that says so.
4. Where folders cannot be locked (NFS), changes are made without, as ever.
"""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

WAIT_S = 1.0
_LOOK_S = 0.002


@contextlib.contextmanager
def one_writer(*paths: str | os.PathLike[str], wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the locks of all of these files; a link counts as the file that it leads to.

    Blocks for `wait_s` at most. Raises: TimeoutError (an OSError) naming the folder; OSError.
    """
    with contextlib.ExitStack() as stack:
        end = time.monotonic() + wait_s
        for folder in _folders(paths):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            _lock(descriptor, folder, end)
        yield


def _folders(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the folders, in an order that is the same for all: no two holders wait for each other."""
    return sorted({os.path.dirname(os.path.realpath(path)) for path in paths})


def _lock(descriptor: int, folder: str, end: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError(
                    f"another process is changing a file in {folder} and does not end: try again"
                ) from None
            time.sleep(_LOOK_S)
        except OSError as error:
            log.warning(
                "cannot lock, so that two changes at once may collide folder=%s: %s", folder, error
            )
            return
        else:
            return
