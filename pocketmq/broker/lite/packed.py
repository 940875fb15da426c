"""PackedTable: 64-bit keys and values without an object for each: 16 bytes a row, and free ones.

The keys are hashes, so their bits are as good as random: the highest ten name one of PARTS small tables.
These grow one at a time, so that no put takes longer than a few milliseconds. Within one, linear probing from
the lowest bits on.

    file    32 bytes: "PMQLITE1", a number of the owner's, the size of the rest and its CRC; then the parts:
            number 4, size 4, rows 4; the keys, the values
"""

import logging
import os
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

log = logging.getLogger(__name__)

PARTS = 1_024
_SHIFT = 54
_SIZE_MIN = 8
_HEAD = Struct("<8sQQQ")
_MAGIC = b"PMQLITE1"
_PART = Struct("<III")


def part_of(key: int) -> int:
    """Return which of PARTS a key is in."""
    return key >> _SHIFT


class _Part:
    __slots__ = ("count", "keys", "values")

    def __init__(self, size: int = _SIZE_MIN) -> None:
        """size: a power of two. A key of 0 is a free row."""
        self.keys = array("Q", bytes(8 * size))
        self.values = array("Q", bytes(8 * size))
        self.count = 0

    def place(self, key: int) -> int:
        """Return the row that has the key, or the free one that it would get."""
        keys = self.keys
        mask = len(keys) - 1
        at = key & mask
        while keys[at] not in (key, 0):
            at = at + 1 & mask
        return at

    def grown(self) -> "_Part":
        larger = _Part(2 * len(self.keys))
        for key, value in self.rows():
            larger.put(key, value)
        return larger

    def put(self, key: int, value: int) -> None:
        at = self.place(key)
        self.count += not self.keys[at]
        self.keys[at], self.values[at] = key, value

    def remove(self, at: int) -> None:
        """Free a row; those behind it that would not be found any more move up."""
        keys, values = self.keys, self.values
        mask = len(keys) - 1
        free, self.count = at, self.count - 1
        while keys[at := at + 1 & mask]:
            if (at - keys[at] & mask) >= (at - free & mask):
                keys[free], values[free] = keys[at], values[at]
                free = at
        keys[free] = values[free] = 0

    def rows(self) -> Iterator[tuple[int, int]]:
        return ((key, value) for key, value in zip(self.keys, self.values, strict=True) if key)


class PackedTable:
    """See the head of the file. Keys are 1 and more, values 0 and more, both below 2 ** 64."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}

    def __len__(self) -> int:
        return sum(part.count for part in self._parts.values())

    def get(self, key: int) -> int:
        """Return the value; -1 if it is missing."""
        part = self._parts.get(key >> _SHIFT)
        if part is None:
            return -1
        at = part.place(key)
        return part.values[at] if part.keys[at] else -1

    def put(self, key: int, value: int) -> None:
        number = key >> _SHIFT
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = _Part()
        elif 4 * part.count >= 3 * len(part.keys):
            part = self._parts[number] = part.grown()
        part.put(key, value)

    def remove(self, key: int) -> None:
        """Remove a row, if it is there."""
        part = self._parts.get(key >> _SHIFT)
        if part is not None and part.keys[at := part.place(key)]:
            part.remove(at)

    def rows(self, part: int) -> list[tuple[int, int]]:
        """Return the rows of one of PARTS, as they are now."""
        found = self._parts.get(part)
        return [] if found is None else list(found.rows())

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole table, as `load` takes it: in the byte order of this machine."""
        for number, part in self._parts.items():
            yield _PART.pack(number, len(part.keys), part.count)
            yield part.keys.tobytes()
            yield part.values.tobytes()

    def load(self, data: memoryview) -> None:
        """Take what `pieces` gave. Raises: ValueError, struct.error if it is something else."""
        at = 0
        while at < len(data):
            number, size, count = _PART.unpack_from(data, at)
            at += _PART.size
            if size & size - 1 or not count < size <= (len(data) - at) // 16:
                raise ValueError(f"no part of a table at {at}")
            part = self._parts[number] = _Part(0)
            part.count = count
            part.keys.frombytes(data[at : at + 8 * size])
            part.values.frombytes(data[at + 8 * size : at + 16 * size])
            at += 16 * size


def save_table(path: Path, table: PackedTable, note: int) -> None:
    """Replace a file that has the table and a number. Raises: OSError."""
    pieces = list(table.pieces())
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(_HEAD.pack(_MAGIC, note, sum(map(len, pieces)), crc))
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_table(path: Path, table: PackedTable) -> int:
    """Fill an empty table from its file. Returns: the number; -1 if the file is missing or broken."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return -1
    if len(data) >= _HEAD.size:
        magic, note, size, crc = _HEAD.unpack_from(data)
        rows = memoryview(data)[_HEAD.size :]
        if (magic, size, crc) == (_MAGIC, len(rows), zlib.crc32(rows)):
            table.load(rows)
            return int(note)
    log.warning("cannot be read, and is made anew: %s", path)
    return -1
