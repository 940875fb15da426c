"""RecordFiles: the two files of the delivery record, deliveries/current and deliveries/previous.

Blocks: int32 size, int32 CRC-32, msgpack arrays; the rows are those of record.py. The older file goes when
the newer one is full. A torn block is cut off. Owner: DeliveryRecord; readers may run in a thread, since a
block is complete or not yet there.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgpack

from pocketmq.broker.delivery.rows import TEXT, Row, Texts

_BLOCK = struct.Struct(">II")


class RecordFiles:
    """generation: how often the files have changed places since the start."""

    def __init__(self, folder: str, size_max: Callable[[], int]) -> None:
        self._folder = folder
        self._size_max = size_max
        self._size = -1
        self.generation = 0

    def append(self, data: bytes, *, full: bool = False) -> bool:
        """Append a block. full: begin a new file whatever the size. Returns: whether one is begun now.

        Raises: OSError.
        """
        current = os.path.join(self._folder, "current")
        os.makedirs(self._folder, exist_ok=True)
        if self._size < 0:
            self._size = whole_size(current)
        with open(current, "r+b" if self._size else "wb") as file:
            file.truncate(self._size)
            file.seek(self._size)
            file.write(_BLOCK.pack(len(data), zlib.crc32(data)) + data)
        self._size += _BLOCK.size + len(data)
        if not full and self._size * 2 < self._size_max():
            return False
        os.replace(current, os.path.join(self._folder, "previous"))
        self.generation += 1
        self._size = 0
        return True

    def rows(self) -> Iterator[tuple[Texts, Row]]:
        """Yield all rows, the oldest first, with the texts of their file."""
        for name in ("previous", "current"):
            texts: Texts = {}
            for block in _blocks(_content(os.path.join(self._folder, name))):
                yield from rows_of(block, texts)

    def open(self, name: str) -> BinaryIO | None:
        """Open a file to read it, whatever name it has later; None if it is absent."""
        try:
            return open(os.path.join(self._folder, name), "rb")
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
        names = ("previous", "current") if self._generation < 0 or behind else ("current",)
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
                for block in _blocks(file.read()):
                    self._at += _BLOCK.size + len(block)
                    yield from rows_of(block, self._texts)


def rows_of(block: bytes, texts: Texts) -> Iterator[tuple[Texts, Row]]:
    """Yield the rows of a block; new texts are added to `texts`."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=len(block) + 1)
    unpacker.feed(block)
    for row in unpacker:
        if row[0] == TEXT:
            texts[row[1]] = row[2]
        else:
            yield texts, row


def _content(path: str) -> bytes:
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
        block = data[at + _BLOCK.size : at + _BLOCK.size + size]
        if len(block) < size or zlib.crc32(block) != crc:
            return
        yield block
        at += _BLOCK.size + size


def whole_size(path: str) -> int:
    """Return the size of a file's whole blocks, bytes; 0 if the file is absent."""
    return sum(_BLOCK.size + len(block) for block in _blocks(_content(path)))
