"""Small reads of files of this machine.

A look is one pread of a block: a map costs more than the few bytes, and a plan looks into each of 200,000
queues.
"""

import os
from typing import Protocol

from pocketmq.files.layout import LOST_FOUND, Listed


class OpenFile(Protocol):
    """An open file for reading a few places."""

    def look(self, start: int, end: int) -> bytes: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """A file system, as far as reading an index needs it. Missing files raise FileNotFoundError."""

    def list(self, path: str) -> list[Listed]: ...

    def peek(self, path: str) -> OpenFile:
        """Open a file to look at a few places; close it soon."""
        ...


class BlockFile:
    """A local file by pread; small neighbours come from one block."""

    __slots__ = ("_base", "_block", "_descriptor")
    _BLOCK = 4096

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._base = 0
        self._block = b""

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def look(self, start: int, end: int) -> bytes:
        """Return the bytes start <= b < end; fewer at the end of the file."""
        if end - start > self._BLOCK // 4:
            return os.pread(self._descriptor, max(0, end - start), start)
        at = start - self._base
        if at < 0 or end - self._base > len(self._block):
            # Half of it lies before the place: a binary search ends by steps to either side.
            self._base = max(0, (start & ~511) - self._BLOCK // 2)
            self._block = os.pread(self._descriptor, self._BLOCK, self._base)
            at = start - self._base
        return self._block[at : at + end - start]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class LocalFiles:
    """The machine's own files (or anything mounted there)."""

    def list(self, path: str) -> list[Listed]:
        """Return names in order, without the file system's own. Raises: FileNotFoundError."""
        with os.scandir(path) as entries:
            own = [each for each in entries if each.name != LOST_FOUND]
        return sorted([Listed(e.name, -1 if e.is_dir() else _size_or_zero(e)) for e in own])

    def peek(self, path: str) -> OpenFile:
        return BlockFile(path)


def _size_or_zero(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # deleted between the listing and the look
        return 0


def list_or_empty(files: FileSystem, path: str) -> list[Listed]:
    """Return the entries of a folder, none if it is missing or none."""
    try:
        return files.list(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
