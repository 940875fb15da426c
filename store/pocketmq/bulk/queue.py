"""The index files of one queue as numpy columns: ConsumeQueue, its ext file, and 5.x batch queues.

    ConsumeQueue, 20 bytes an entry      BatchConsumeQueue, 46 bytes an entry
    0   8  position in the commit log    0   8  position              28  8  base offset
    8   4  record size, bytes            8   4  record size           36  2  messages in the batch
    12  8  tags code                     12  8  tags code             38  8  compact offset, reserved
                                         20  8  store time

1. Entry i of a ConsumeQueue has queue offset i; of a batch queue base offset .. base + count - 1.
2. Used entries are a prefix of the files; the first entry with size 0 is the end.
3. At the head there may be entries (0, 2147483647, 0): the queue began at an offset > 0 (disk.md 4).
4. Positions grow with the index: a binary search finds a range of the commit log.
5. A code <= -2147483649 is the address of a unit in consumequeue_ext, which holds the code.
Read only; the broker's dispatch writes these files.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.bulk.fetch import Entry, File, Folders, list_or_empty

ENTRY = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
BATCH_ENTRY = np.dtype(
    [
        ("position", ">i8"),
        ("size", ">i4"),
        ("code", ">i8"),
        ("store_ms", ">i8"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("compact", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert ENTRY.itemsize == 20
assert BATCH_ENTRY.itemsize == 46

BLANK_SIZE = 2147483647
_HEAD_SIZE = 1000
_EXT_ADDRESS_MAX = -2147483649
_EXT_ADDRESS_ZERO = -(1 << 63)
_HEAD = struct.Struct(">qiq")
_BATCH = struct.Struct(">qiqqqh")

Int64s = npt.NDArray[np.int64]


class Entries(NamedTuple):
    """Some entries in queue order. table: dtype ENTRY, big-endian as on disk; offsets: queue offsets."""

    table: npt.NDArray[Any]
    offsets: Int64s


class IndexEntry(NamedTuple):
    """One entry; `offset` is its first message's queue offset."""

    position: int
    size: int
    code: int
    offset: int
    messages: int


class QueueFile(NamedTuple):
    """One file: its first byte in the whole queue, its size in bytes, its path."""

    first: int
    size: int
    path: str


def index_files(entries: list[Entry], folder: str) -> list[QueueFile]:
    """The files of a folder whose names are 20 digits, in order; anything else is ignored."""
    return [
        QueueFile(int(e.name), e.size, f"{folder}/{e.name}")
        for e in entries
        if len(e.name) == 20 and e.name.isdecimal() and e.size > 0
    ]


class Queue:
    """The index of one queue. Bounds are looked up once and then stand, whatever a broker appends.

    Files are opened when they are looked into; close() after a look, since a store has many queues.
    """

    __slots__ = (
        "_ext_folder",
        "_files",
        "_firsts",
        "_folders",
        "_open",
        "_width",
        "batch",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        folders: Folders,
        folder: str,
        topic: str,
        queue_id: int,
        *,
        batch: bool,
        ext: str = "",
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.batch = batch
        self._folders = folders
        self._width = (BATCH_ENTRY if batch else ENTRY).itemsize
        self._ext_folder = ext
        self._files = index_files(list_or_empty(folders, folder), folder)
        self._firsts = [f.first // self._width for f in self._files]
        self._open: dict[str, File] = {}

    # ---- indices are entry numbers, not queue offsets; they differ in batch queues only

    @property
    def first_index(self) -> int:
        return self._firsts[0] if self._files else 0

    def end_index(self) -> int:
        """One behind the last used entry (invariant 2)."""
        for number in range(len(self._files) - 1, -1, -1):
            file = self._files[number]
            first = self._firsts[number]
            count = file.size // self._width
            used = self._used_at_the_head(file, count)
            if used is None:
                used = _partition(first + 1, first + count, self._is_unused) - first
            if used:
                return first + used
        return self.first_index

    def _used_at_the_head(self, file: QueueFile, count: int) -> int | None:
        """Used entries of a file that has only a few; None for one with more."""
        dtype = BATCH_ENTRY if self.batch else ENTRY
        seen = min(count, _HEAD_SIZE // self._width)
        head = np.frombuffer(self._file(file.path).look(0, seen * self._width), dtype)
        unused = head["size"] <= 0
        if unused.any():
            return int(unused.argmax())
        return len(head) if len(head) >= count else None

    def _is_unused(self, index: int) -> bool:
        return self.entry(index).size <= 0

    def entry(self, index: int) -> IndexEntry:
        """One entry. Raises: IndexError outside of the files."""
        number = bisect_right(self._firsts, index) - 1
        if number < 0:
            raise IndexError(index)
        file = self._files[number]
        at = (index - self._firsts[number]) * self._width
        raw = self._file(file.path).look(at, at + self._width)
        if len(raw) < self._width:
            raise IndexError(index)
        if self.batch:
            position, size, code, _, base, count = _BATCH.unpack_from(raw)
            return IndexEntry(position, size, code, base, max(count, 1))
        position, size, code = _HEAD.unpack_from(raw)
        return IndexEntry(position, size, code, index, 1)

    def bounds(self, log_start: int) -> tuple[int, int]:
        """Entry numbers [first with a record in the log, end); equal when nothing is left."""
        end = self.end_index()
        return self.at_position(log_start, self.first_index, end), end

    def at_position(self, position: int, low: int, high: int) -> int:
        """First entry in [low, high) whose record is at or behind `position` (invariants 3, 4)."""

        def reached(index: int) -> bool:
            entry = self.entry(index)
            return entry.size != BLANK_SIZE and entry.position >= position

        # Mostly nothing was deleted.
        return low if low < high and reached(low) else _partition(low, high, reached)

    def at_offset(self, offset: int, low: int, high: int) -> int:
        """First entry in [low, high) that holds `offset` or a later one."""
        if not self.batch:
            return min(max(offset, low), high)

        def reached(index: int) -> bool:
            entry = self.entry(index)
            return entry.offset + entry.messages > offset

        return _partition(low, high, reached)

    def offset_at(self, index: int, low: int, high: int) -> int:
        """The queue offset of entry `index`; behind the last one that of the next message."""
        if not self.batch:
            return index
        if low == high:
            return 0
        if index < high:
            return self.entry(index).offset
        last = self.entry(high - 1)
        return last.offset + last.messages

    def entries(self, low: int, high: int) -> Entries:
        """Entries [low, high); what lies outside of the files is left out."""
        dtype = BATCH_ENTRY if self.batch else ENTRY
        pieces: list[npt.NDArray[Any]] = []
        starts: list[Int64s] = []
        for file, first in zip(self._files, self._firsts, strict=True):
            begin = max(low, first)
            end = min(high, first + file.size // self._width)
            if begin < end:
                raw = self._file(file.path).read(
                    (begin - first) * self._width, (end - first) * self._width
                )
                pieces.append(np.frombuffer(raw, dtype))
                starts.append(np.arange(begin, begin + len(pieces[-1]), dtype=np.int64))
        if not pieces:
            return Entries(np.empty(0, ENTRY), np.empty(0, np.int64))
        table = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        if self.batch:
            plain = np.empty(len(table), ENTRY)
            for name in ENTRY.names or ():
                plain[name] = table[name]
            return Entries(plain, table["base"].astype(np.int64))
        if self._ext_folder and len(table) and int(table["code"].min()) <= _EXT_ADDRESS_MAX:
            codes = self._resolve(table["code"].astype(np.int64))
            table = table.copy()
            table["code"] = codes
        return Entries(table, np.concatenate(starts) if len(starts) > 1 else starts[0])

    def _resolve(self, codes: Int64s) -> Int64s:
        """Addresses of ext units -> the tags codes in them; an address without a file stays."""
        resolved = codes.copy()
        addressed = codes <= _EXT_ADDRESS_MAX
        # Two's complement: subtracting Long.MIN_VALUE is flipping the sign bit.
        units = codes ^ np.int64(_EXT_ADDRESS_ZERO)
        files = index_files(list_or_empty(self._folders, self._ext_folder), self._ext_folder)
        for file in files:
            inside = np.flatnonzero(
                addressed & (units >= file.first) & (units < file.first + file.size - 9)
            )
            if len(inside):
                opened = self._file(file.path)
                data = np.frombuffer(opened.read(0, opened.size), np.uint8)
                at = (units[inside] - file.first)[:, None] + np.arange(2, 10)
                resolved[inside] = data[at].copy().view(">i8")[:, 0]
        return resolved

    def _file(self, path: str) -> File:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._folders.peek(path)
        return file

    def close(self) -> None:
        """Gives the open files back; entries that were handed out stay valid."""
        for file in self._open.values():
            file.close()
        self._open.clear()


def _partition(low: int, high: int, reached: Callable[[int], bool]) -> int:
    """The first index in [low, high) for which `reached` is true; it must stay true from there on."""
    while low < high:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle + 1
    return low
