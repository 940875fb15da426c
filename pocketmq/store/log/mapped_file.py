"""MappedFile: one file of fixed full size, mapped into memory when it is first touched.

1. The file has its full length from creation; behind the written part are zeros, mostly without blocks.
2. Writing to a mapped page without a block raises SIGBUS if the disk is full. So nothing is written beyond
   `reserved`: reserve() allocates blocks first, and that is where a full disk is noticed.
3. Slices of `view` may outlive close() and delete(): the map goes with its last slice. Hence no mmap.close()
   here, only dropped references.
4. fdatasync on the descriptor also writes pages that were changed through the map (Linux, POSIX 2008).
Owner: the MappedFileQueue that holds it.
"""

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator

from pocketmq.store.errors import DiskFull, StoreError, StoreUnreadable
from pocketmq.store.log.descriptors import close_file, open_file

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_MADV_POPULATE_WRITE = 23
_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_CHUNK = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MappedFile:
    """`start` is the position of the file's first byte in its sequence of files; `size` in bytes.

    folder: the path is made when it is asked for, since there may be as many files as queues. name: if it
    is not the 20 digits of `start`.
    """

    __slots__ = (
        *("_descriptor", "_folder", "_is_deleted", "_map", "_view"),
        *("keep_open", "name", "reserved", "size", "start"),
    )

    def __init__(
        self,
        folder: str,
        start: int,
        size: int,
        *,
        keep_open: bool = False,
        name: str | None = None,
    ) -> None:
        self._folder = folder
        self.name = name
        self.start = start
        self.size = size
        self.reserved = 0
        self.keep_open = keep_open
        self._descriptor = -1
        self._is_deleted = False
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @classmethod
    def create(
        cls, folder: str, start: int, size: int, *, keep_open: bool = False, exclusive: bool = False
    ) -> "MappedFile":
        """Create a file full of zeros without blocks.

        exclusive: fail if it exists; else an existing file is emptied.
        Raises: DiskFull, StoreUnreadable.
        """
        made = cls(folder, start, size, keep_open=keep_open)
        how = os.O_EXCL if exclusive else os.O_TRUNC
        try:
            descriptor = open_file(made.path, os.O_RDWR | os.O_CREAT | how, 0o644)
            try:
                os.ftruncate(descriptor, size)
            finally:
                close_file(descriptor)
        except OSError as error:
            raise refusal(made.path, error) from error
        return made

    @property
    def path(self) -> str:
        return os.path.join(self._folder, self.name or f"{self.start:020d}")

    @property
    def end(self) -> int:
        """Return the position behind the file's last byte."""
        return self.start + self.size

    @property
    def mapped(self) -> bool:
        return self._map is not None

    @property
    def map(self) -> mmap.mmap:
        """Return the map of the whole file, writable."""
        if self._map is None:
            descriptor = self._open()
            try:
                self._map = mmap.mmap(descriptor, self.size)
            except (OSError, ValueError) as error:
                raise StoreUnreadable(self.path, error) from error
            finally:
                self._release(descriptor)
        return self._map

    @property
    def view(self) -> memoryview:
        """Return the whole file, read-only; slices of it are no copies."""
        if self._view is None:
            self._view = memoryview(self.map).toreadonly()
        return self._view

    def reserve(self, end: int, *, fill: bool = False) -> None:
        """Allocate blocks up to `end` (in the file). Raises: DiskFull; then nothing has changed.

        fill: also write zeros there. The first touch of a new page through the map waits for the file
        system's journal, milliseconds long; a page that a write brought into the cache does not. Only for
        files without another writer: the zeros go where nothing was written yet.
        """
        end = min(end, self.size)
        if end <= self.reserved:
            return
        descriptor = self._open()
        try:
            os.posix_fallocate(descriptor, self.reserved, end - self.reserved)
            if fill:
                os.pwrite(descriptor, bytes(end - self.reserved), self.reserved)
        except OSError as error:
            raise refusal(self.path, error) from error
        finally:
            self._release(descriptor)
        self.reserved = end

    def populate(self, start: int, end: int) -> None:
        """Fault in the pages of start..end for writing, for the pool: without the GIL.

        The writer's first touch of a page costs it microseconds. Only for reserved bytes. Does nothing
        where the kernel does not support it (Linux before 5.14).
        """
        start -= start % mmap.PAGESIZE
        end = min(end, self.reserved) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < end:
            memory = self.map
            held = ctypes.c_char.from_buffer(memory)
            _libc.madvise(ctypes.addressof(held) + start, end - start, _MADV_POPULATE_WRITE)

    def read(self, at: int, size: int) -> bytes:
        """Read bytes by a system call, so that a look into a file does not map it."""
        if self._map is not None:
            return self._map[at : at + size]
        descriptor = self._open()
        try:
            return os.pread(descriptor, size, at)
        finally:
            self._release(descriptor)

    def read_all(self, size_max: int) -> bytes | None:
        """Read all data by one system call; None if there may be some behind `size_max`."""
        descriptor = self._open()
        try:
            if size_max < self.size:
                try:
                    os.lseek(descriptor, size_max, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        return None
                else:
                    return None
            return os.pread(descriptor, size_max, 0)
        finally:
            self._release(descriptor)

    @contextlib.contextmanager
    def held_open(self) -> Iterator[None]:
        """Keep one descriptor open for several reads."""
        if self.keep_open:
            yield
            return
        self.keep_open = True
        try:
            yield
        finally:
            self.keep_open = False
            if self._descriptor >= 0:
                close_file(self._descriptor)
                self._descriptor = -1

    def sync(self) -> None:
        """Sync what was written. For the pool: it blocks.

        A file that was deleted in the meantime has nothing to sync.
        Raises: OSError if the disk failed, and its content is unknown; StoreUnreadable if the file could not
        be opened, and nothing was tried.
        """
        descriptor = self._descriptor
        if descriptor >= 0:
            try:
                os.fdatasync(descriptor)
            except OSError:
                # Deleted on another thread meanwhile: the descriptor was closed. No disk has failed.
                if not self._is_deleted:
                    raise
            return
        try:
            descriptor = open_file(self.path, os.O_RDWR)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnreadable(self.path, error) from error
        try:
            os.fdatasync(descriptor)
        finally:
            close_file(descriptor)

    def write_again(self, start: int, end: int) -> None:
        """Rewrite the same bytes: after a failed fsync the kernel may take unwritten pages for written.

        Holes stay holes. Raises: OSError, StoreUnreadable.
        """
        descriptor = self._open()
        try:
            end = min(end, self.data_end(start))
            while start < end:
                start = max(start, os.lseek(descriptor, start, os.SEEK_DATA))
                data = os.pread(descriptor, min(_CHUNK, max(0, end - start)), start)
                os.pwrite(descriptor, data, start)
                start += max(1, len(data))
        finally:
            self._release(descriptor)

    def zero_behind(self, at: int) -> None:
        """Zero everything from `at` on, without blocks; the length stays.

        On return it is zero on disk, too: otherwise a power cut would bring the old bytes back, which would
        be taken for newer ones. The file is never shorter meanwhile, since a single file's length
        determines the length of all.
        """
        descriptor = self._open()
        try:
            held_something = self._holds_something(descriptor, at)
            if at < self.size:
                _punch(descriptor, at, self.size)
            if held_something:
                os.fsync(descriptor)
        finally:
            self._release(descriptor)
        self.reserved = min(self.reserved, at)

    def _holds_something(self, descriptor: int, at: int) -> bool:
        """Return True if a byte from `at` on is not zero."""
        end = self.data_end(at)
        for start in range(at, end, _CHUNK):
            if os.pread(descriptor, min(_CHUNK, end - start), start).strip(b"\0"):
                return True
        return False

    def data_end(self, at: int) -> int:
        """Return a bound for the data behind `at`: from there to the end of the file there are only holes."""
        descriptor = self._open()
        try:
            end = at
            while end < self.size:
                try:
                    start = os.lseek(descriptor, end, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:
                        break
                    return self.size
                end = os.lseek(descriptor, start, os.SEEK_HOLE)
            return min(end, self.size)
        finally:
            self._release(descriptor)

    def unmap(self) -> None:
        """Drop the map; it goes with its last slice (invariant 3)."""
        self._view = None
        self._map = None

    def close(self) -> None:
        """Drop map and descriptor."""
        self.unmap()
        if self._descriptor >= 0:
            close_file(self._descriptor)
            self._descriptor = -1

    def delete(self) -> None:
        """Remove the file from its folder; slices handed out stay readable."""
        self._is_deleted = True
        self.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _open(self) -> int:
        if self._descriptor >= 0:
            return self._descriptor
        try:
            descriptor = open_file(self.path, os.O_RDWR)
        except OSError as error:
            raise StoreUnreadable(self.path, error) from error
        if self.keep_open:
            self._descriptor = descriptor
        return descriptor

    def _release(self, descriptor: int) -> None:
        if descriptor != self._descriptor:
            close_file(descriptor)


def _punch(descriptor: int, start: int, end: int) -> None:
    """Punch a hole for these bytes."""
    how = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
    if _libc.fallocate(descriptor, how, start, end - start) == 0:
        return
    error = ctypes.get_errno()
    if error not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(error, os.strerror(error))
    # No holes in this file system.
    os.ftruncate(descriptor, start)
    os.ftruncate(descriptor, end)


def refusal(path: str, error: OSError) -> StoreError:
    """Map a failed call to DiskFull or StoreUnreadable."""
    if error.errno in _NO_ROOM:
        # Each attempt may name another file: its folder is what a reader looks for.
        return DiskFull(os.path.dirname(path), os.strerror(error.errno))
    return StoreUnreadable(path, error)
