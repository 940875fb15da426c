"""lock and abort: one broker per store, and whether the last one stopped cleanly.

    lock    4 bytes "lock"; byte 0 is locked exclusively (fcntl record lock = Java's FileLock) while open
    abort   exists while a broker runs; 4.9 leaves it empty, 5.x writes its process id, and so do we, with a
            second line that identifies the boot of the machine whose memory holds the writes (memory_of);
            nothing behind the first line's end: an fsync failed

A record lock belongs to the process: closing any descriptor of the file drops it, so no other code opens it.
Source: DefaultMessageStore.start, createTempFile, RocketMQ 4.9.7; disk.md 1.
"""

import contextlib
import fcntl
import os
import struct
import sys
from enum import Enum

from pocketmq.store.errors import StoreLocked, StoreUnreadable
from pocketmq.store.log.folder import sync_folder

# fcntl locks do not keep the same process out, so a second open of one store is noticed here.
_held: set[tuple[int, int]] = set()
# Linux' struct flock: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi")


class StoreLock:
    """Held from acquire() to release()."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._descriptor = -1
        self._identity = (0, 0)

    def acquire(self) -> None:
        """Take the lock. Raises: StoreLocked, StoreUnreadable."""
        path = os.path.join(self._root, "lock")
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in _held:
                raise StoreLocked(self._root)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnreadable(path, error) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise StoreLocked(self._root, holder) from error
        os.pwrite(descriptor, b"lock", 0)
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        _held.add(self._identity)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            _held.discard(self._identity)
            os.close(self._descriptor)
            self._descriptor = -1


def _holder(descriptor: int) -> str:
    """Return which process locks byte 0, as part of a sentence; empty if the system does not report it."""
    if sys.platform != "linux":
        return ""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        # A process of another container has no number here.
        if kind == fcntl.F_UNLCK or pid <= 0:
            return ""
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f", process {pid} ({file.read().strip()})"
    except OSError:
        return ""


class LastStop(Enum):
    """KILLED: everything written is there. UNKNOWN: any part of what was not flushed may be lost.

    FORGOTTEN: like UNKNOWN, and pages may be in memory only although the kernel takes them for written.
    """

    CLEAN = "clean"
    KILLED = "killed"
    UNKNOWN = "unknown"
    FORGOTTEN = "forgotten"


def memory_of(file: int) -> str:
    """Identify the memory that holds writes to the files beside an open one until they are on disk.

    Another result means: the machine has rebooted meanwhile, or the files are a copy. Empty: unknown.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            status = os.fstat(file)
            return f"{boot.read().strip()} {status.st_dev} {status.st_ino}"
    except OSError:
        return ""


class AbortFile:
    """The file whose presence means: a broker is running, or has crashed.

    Its second line is changed by cutting it off, and by writing over it: either needs no room, so that a full
    disk does not keep a failed fsync from being noted, nor takes the note away.
    """

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, "abort")
        # Held open: it may be wanted when descriptors have run out.
        self._descriptor = -1

    def last_stop(self) -> LastStop:
        """Return how the last broker of this store ended."""
        try:
            with open(self._path, encoding="ascii") as file:
                first, newline, memory = file.read(4096).partition("\n")
                if first and newline and not memory:
                    return LastStop.FORGOTTEN
                same = bool(memory) and memory == memory_of(file.fileno())
                return LastStop.KILLED if same else LastStop.UNKNOWN
        except FileNotFoundError:
            return LastStop.CLEAN
        except (OSError, ValueError):
            return LastStop.UNKNOWN

    @property
    def is_ours(self) -> bool | None:
        """Return True if PocketMQ has made it: RocketMQ writes no second line. None: no such file."""
        try:
            with open(self._path, "rb") as file:
                return b"\n" in file.read(4096)
        except FileNotFoundError:
            return None

    def create(self, *, whole: bool) -> None:
        """Create the file. whole: if the process is killed, its files will be consistent.

        Durable on return: after a power cut a missing file would pass for a clean stop.
        """
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o644)
        memory = memory_of(self._descriptor) if whole else ""
        text = f"{os.getpid()}\n{memory or 'unknown'}".encode("ascii")
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))
        os.fsync(self._descriptor)
        sync_folder(os.path.dirname(self._path))

    def note_failed_fsync(self) -> None:
        """Tell the next start of a failed fsync (FORGOTTEN); errors of the disk are ignored.

        The note need not be durable: after a power cut there is nothing to write again.
        """
        with contextlib.suppress(OSError):
            first, newline, _ = os.pread(self._descriptor, 4096, 0).partition(b"\n")
            os.ftruncate(self._descriptor, len(first + newline))

    def remove(self) -> None:
        """Say that the stop was clean."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        sync_folder(os.path.dirname(self._path))

    def close(self) -> None:
        """Leave the file as it is."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
