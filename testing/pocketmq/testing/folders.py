"""The folders of test brokers: in memory or temporary, and removed even if their process could not do it.

A test run that a signal ends (a CI job that is cancelled, a time-out) leaves its folders, and those in memory
occupy memory for ever. So each has a file beside it that its process holds locked, NAME.lock: the run that
makes the next folder there removes those whose lock is free. The kernel frees a lock when its process ends.
"""

import fcntl
import glob
import os
import shutil
import tempfile
from contextlib import suppress

MEMORY = "memory"
TEMPORARY = "temporary"
STORES = (MEMORY, TEMPORARY)

_MEMORY_FOLDER = "/dev/shm"
_MEMORY_FREE_MIN = 256 << 20
_PREFIX = "pocketmq-"
_LOCK = ".lock"
# The locks of this process, by folder.
_held: dict[str, int] = {}


def new_folder(kind: str) -> str:
    """Return a new empty folder; for "memory" one that is not on a disk, if the machine has such."""
    base = _MEMORY_FOLDER if kind == MEMORY and _has_memory_folder() else tempfile.gettempdir()
    remove_left(base)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    # Locked under another name first: there is no moment when it seems to be left.
    lock, name = tempfile.mkstemp(dir=folder)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(name, folder + _LOCK)
    _held[folder] = lock
    return folder


def lock_of(folder: str) -> int:
    """Return the descriptor that holds a folder, for a child process that uses it as well."""
    return _held[folder]


def remove_folder(folder: str) -> None:
    """Remove a folder of `new_folder`, and its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.unlink(folder + _LOCK)
    lock = _held.pop(folder, None)
    if lock is not None:
        os.close(lock)


def remove_left(base: str) -> None:
    """Remove the folders there whose processes have ended."""
    for name in glob.glob(os.path.join(glob.escape(base), f"{_PREFIX}*{_LOCK}")):
        folder = name.removesuffix(_LOCK)
        if folder in _held:
            continue
        try:
            lock = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another user's, or just removed
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                os.unlink(name)
        except OSError:
            continue  # its process lives
        finally:
            os.close(lock)


def _has_memory_folder() -> bool:
    # Containers often have 64 MiB there: too little for large bodies.
    try:
        free = shutil.disk_usage(_MEMORY_FOLDER).free
    except OSError:
        return False
    return free >= _MEMORY_FREE_MIN and os.access(_MEMORY_FOLDER, os.W_OK)
