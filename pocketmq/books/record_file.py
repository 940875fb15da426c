"""RecordFiles: the files of the delivery record, in the folder deliveries.

    sums       what dropped files said, folded (ledger/folding.py)
    dropped    a file that is to be folded
    previous, current

Blocks: int32 size, int32 CRC-32, msgpack arrays; the rows are those of record.py. When `current` is full,
each becomes the one before it. A file that is to be dropped before the last one is folded goes unfolded. A
torn block is cut off. A slave has a copy of its master's files (record_copy.py). Owner: DeliveryRecord;
readers may run in a thread, since a block is complete or not yet there.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgpack

from pocketmq.books.rows import TEXT, Row, Texts

_BLOCK = struct.Struct(">II")
NAMES = SUMS, DROPPED, PREVIOUS, CURRENT = "sums", "dropped", "previous", "current"


class RecordFiles:
    """generation: how often the files have changed places since the start; is_copied: they are a master's,
    and nothing is appended.
    """

    def __init__(self, folder: str, size_max: Callable[[], int]) -> None:
        self._folder = folder
        self._size_max = size_max
        self._size = -1
        self.generation = 0
        self.is_copied = False

    @property
    def is_folded(self) -> bool:
        """Return True if no dropped file waits to be folded."""
        return not os.path.exists(self.path(DROPPED))

    @property
    def size_max(self) -> int:
        """Return the size of all files together, bytes."""
        return self._size_max()

    def path(self, name: str) -> str:
        """Return where a file is."""
        return os.path.join(self._folder, name)

    def append(self, data: bytes, *, full: bool = False) -> bool:
        """Append a block. full: begin a new file whatever the size. Returns: whether one is begun now.

        Raises: OSError.
        """
        self.write(self.current_size, block(data))
        if not full and self._size * 2 < self._size_max():
            return False
        self.turn()
        return True

    @property
    def current_size(self) -> int:
        """Return the size of the whole blocks of the newest file, bytes."""
        if self._size < 0:
            self._size = whole_size(self.path(CURRENT))
        return self._size

    def write(self, at: int, blocks: bytes) -> None:
        """Write blocks at the end of the newest file, which is at `at`. Raises: OSError."""
        os.makedirs(self._folder, exist_ok=True)
        with open(self.path(CURRENT), "r+b" if at else "wb") as file:
            file.truncate(at)
            file.seek(at)
            file.write(blocks)
        self._size = at + len(blocks)

    def turn(self, *, folds: bool = True) -> None:
        """Begin a new file. folds: keep the one that is dropped until it is folded. Raises: OSError."""
        previous, dropped = self.path(PREVIOUS), self.path(DROPPED)
        if folds and os.path.exists(previous) and not os.path.exists(dropped):
            os.replace(previous, dropped)
        if os.path.exists(self.path(CURRENT)):
            os.replace(self.path(CURRENT), previous)
        self.generation += 1
        self._size = 0

    def own(self) -> None:
        """Continue a master's files as this broker's own."""
        if self.is_copied:
            self.is_copied, self._size = False, -1

    def clear(self) -> None:
        """Delete all files. Raises: OSError."""
        for name in NAMES:
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))
        # More than one generation: what is read already is not a beginning of what will be there.
        self.generation += 2
        self._size = 0

    def replace_sums(self, blocks: bytes) -> None:
        """Write the sums. Raises: OSError."""
        os.makedirs(self._folder, exist_ok=True)
        with open(self.path("sums.new"), "wb") as file:
            file.write(blocks)
        os.replace(self.path("sums.new"), self.path(SUMS))

    def rows(self) -> Iterator[tuple[Texts, Row]]:
        """Yield all rows, the oldest first, with the texts of their file."""
        for name in (DROPPED, PREVIOUS, CURRENT):
            yield from self.rows_in(name)

    def rows_in(self, name: str) -> Iterator[tuple[Texts, Row]]:
        """Yield the rows of one file."""
        yield from rows_of_file(content(self.path(name)))

    def open(self, name: str) -> BinaryIO | None:
        """Open a file to read it, whatever name it has later; None if it is absent."""
        try:
            return open(self.path(name), "rb")
        except FileNotFoundError:
            return None


class RecordReader:
    """Reads the rows, and later those that have been added."""

    def __init__(self, files: RecordFiles) -> None:
        self._files = files
        self._generation = -1
        self._at = 0
        self._texts: Texts = {}

    def pieces(self) -> list[tuple[BinaryIO, int]] | None:
        """Return what is to be read, with the place to begin; None if rows were dropped unread.

        On the event loop; `rows` may then run in a thread.
        """
        behind = self._files.generation - self._generation
        if self._generation >= 0 and behind > 1:
            return None
        if self._generation < 0:
            names: tuple[str, ...] = NAMES
        else:
            names = (PREVIOUS, CURRENT) if behind else (CURRENT,)
        self._generation = self._files.generation
        places = [self._at if place == 0 else 0 for place in range(len(names))]
        opened = [
            (file, at)
            for name, at in zip(names, places, strict=True)
            if (file := self._files.open(name)) is not None
        ]
        if not opened:
            self._at = 0
        return opened

    def rows(self, pieces: list[tuple[BinaryIO, int]]) -> Iterator[tuple[Texts, Row]]:
        """Yield the rows of these pieces."""
        for file, begin in pieces:
            with file:
                if not begin:
                    self._texts = {}
                self._at = begin
                file.seek(begin)
                for data in _blocks(file.read()):
                    self._at += _BLOCK.size + len(data)
                    yield from rows_of(data, self._texts)


def block(data: bytes) -> bytes:
    """Return a block with these rows."""
    return _BLOCK.pack(len(data), zlib.crc32(data)) + data


def rows_of(data: bytes, texts: Texts) -> Iterator[tuple[Texts, Row]]:
    """Yield the rows of a block; new texts are added to `texts`."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=len(data) + 1)
    unpacker.feed(data)
    for row in unpacker:
        if row[0] == TEXT:
            texts[row[1]] = row[2]
        else:
            yield texts, row


def rows_of_file(data: bytes) -> Iterator[tuple[Texts, Row]]:
    """Yield the rows of a file with this content, up to the first torn block."""
    texts: Texts = {}
    for each in _blocks(data):
        yield from rows_of(each, texts)


def content(path: str) -> bytes:
    """Return a file's bytes; none if it is absent."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the whole blocks in order, up to the first torn one."""
    at = 0
    while at + _BLOCK.size <= len(data):
        size, crc = _BLOCK.unpack_from(data, at)
        found = data[at + _BLOCK.size : at + _BLOCK.size + size]
        if len(found) < size or zlib.crc32(found) != crc:
            return
        yield found
        at += _BLOCK.size + size


def whole_size(path: str) -> int:
    """Return the size of a file's whole blocks, bytes; 0 if the file is absent."""
    return sum(_BLOCK.size + len(each) for each in _blocks(content(path)))
