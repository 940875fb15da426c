"""Byte access: a local folder, or an object store through pyarrow.fs.

Two calls are all that bulk reading needs: list a folder, and read a range of a file. A local file that is
read through is mapped, and ranges are slices of the map (an open map survives the file's deletion, so
retention does not interrupt a running read). Elsewhere a range is one request.
"""

import mmap
import os
import re
from typing import Any, Protocol

import pyarrow as pa

from pocketmq.bulk.errors import NotAStore
from pocketmq.files.layout import Listed
from pocketmq.files.local import BlockFile, LocalFiles

# URIs that pyarrow knows nothing of, and what works in their place.
_HINTS = {
    "dbfs": "Python sees it as the folder /dbfs/...",
    "http": "a web server cannot be listed: copy the store to a folder or an object store (s3://...)",
    "https": "a web server cannot be listed: copy the store to a folder or an object store (s3://...)",
    "s3a": "pyarrow calls it s3://",
    "s3n": "pyarrow calls it s3://",
}
_URI = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)


class File(Protocol):
    """An open file; its size is the one it had when it was opened."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> pa.Buffer:
        """Return the bytes start <= b < end, without a copy if possible."""
        ...

    def look(self, start: int, end: int) -> bytes:
        """Like read(), for a few bytes: without Arrow's buffer around them."""
        ...

    def advise(self, *, sequential: bool) -> None:
        """Hint how the file will be read."""
        ...

    def close(self) -> None:
        """Close the file; buffers read from it stay valid."""
        ...


class Folders(Protocol):
    """The part of a file system that bulk reading needs. Missing folders raise FileNotFoundError."""

    def list(self, path: str) -> list[Listed]: ...

    def open(self, path: str) -> File:
        """Open a file to read it through."""
        ...

    def peek(self, path: str) -> File:
        """Open a file to look at a few places; close it soon."""
        ...


class PeekedFile(BlockFile):
    """A local file by pread."""

    __slots__ = ()

    def read(self, start: int, end: int) -> pa.Buffer:
        return pa.py_buffer(self.look(start, end))

    def advise(self, *, sequential: bool) -> None:
        pass


class LocalFile:
    """A mapped file."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self._map = (
                mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ) if self.size else None
            )
        # The buffer keeps the map alive; nothing closes it before the last slice is freed.
        self._buffer: pa.Buffer = pa.py_buffer(self._map if self._map is not None else b"")

    def read(self, start: int, end: int) -> pa.Buffer:
        return self._buffer.slice(start, max(0, min(end, self.size) - start))

    def look(self, start: int, end: int) -> bytes:
        return bytes(self.read(start, end))

    def advise(self, *, sequential: bool) -> None:
        # Without the advice a cold file reads 4 to 6 times slower; on sparse reads it costs instead.
        if self._map is not None and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_SEQUENTIAL if sequential else mmap.MADV_NORMAL)

    def close(self) -> None:
        """Do nothing: the map goes with its last slice."""


class LocalFolders(LocalFiles):
    """The machine's own files (or anything mounted there)."""

    def open(self, path: str) -> LocalFile:
        return LocalFile(path)

    def peek(self, path: str) -> PeekedFile:
        return PeekedFile(path)


class ArrowFile:
    """A file of a pyarrow file system; each read is one request, small neighbours come from one block."""

    _BLOCK = 1 << 16

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self.size = size
        self._block: tuple[int, pa.Buffer] = (0, pa.py_buffer(b""))

    def read(self, start: int, end: int) -> pa.Buffer:
        end = min(end, self.size)
        if end - start > self._BLOCK // 4:
            return self._read_at(start, end)
        base, block = self._block
        if not (base <= start and end <= base + block.size):
            # A binary search looks at 20 bytes at a time: fetch what lies around them too.
            base = max(0, start - self._BLOCK // 2)
            block = self._read_at(base, min(self.size, base + self._BLOCK))
            self._block = (base, block)
        return block.slice(start - base, max(0, end - start))

    def look(self, start: int, end: int) -> bytes:
        return bytes(self.read(start, end))

    def _read_at(self, start: int, end: int) -> pa.Buffer:
        self._file.seek(start)
        return self._file.read_buffer(max(0, end - start))

    def advise(self, *, sequential: bool) -> None:
        pass

    def close(self) -> None:
        self._file.close()


class ArrowFolders:
    """A pyarrow.fs file system (S3, GCS, HDFS, ...)."""

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system

    def list(self, path: str) -> list[Listed]:
        from pyarrow import fs

        infos = self._fs.get_file_info(fs.FileSelector(path))
        return sorted(
            Listed(i.base_name, -1 if i.type == fs.FileType.Directory else i.size) for i in infos
        )

    def open(self, path: str) -> ArrowFile:
        # The file knows its size since it was opened: asking again would be one more request.
        file = self._fs.open_input_file(path)
        return ArrowFile(file, file.size())

    peek = open


def file_system_of(path: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a URI and the path inside it; None and the path for a local one.

    What pyarrow does not support goes through fsspec, if installed. Raises: NotAStore.
    """
    scheme = path.partition(":")[0].lower()
    if scheme in _HINTS and re.match(r"^[a-z0-9]+:/", path):
        raise NotAStore(path, _HINTS[scheme])
    if not _URI.match(path):
        return None, path
    from pyarrow import fs

    try:
        file_system, inner = fs.FileSystem.from_uri(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        found = _by_fsspec(path)
        if found is not None:
            return found
        hint = " (libhdfs is needed: set HADOOP_HOME and CLASSPATH)" if scheme == "hdfs" else ""
        raise NotAStore(path, f"its file system cannot be opened{hint}: {error}") from error
    if isinstance(file_system, fs.LocalFileSystem):
        return None, inner
    return file_system, inner


def _by_fsspec(path: str) -> tuple[Any, str] | None:
    from pyarrow import fs

    try:
        from fsspec.core import url_to_fs

        file_system, inner = url_to_fs(path)
    except (ImportError, OSError, ValueError):
        # What it cannot open either is said by pyarrow's own error.
        return None
    return fs.PyFileSystem(fs.FSSpecHandler(file_system)), inner


def folders_of(path: str) -> tuple[Folders, str]:
    """Return the file system of `path` and the path inside it; see file_system_of()."""
    file_system, inner = file_system_of(path)
    return (LocalFolders() if file_system is None else ArrowFolders(file_system)), inner
