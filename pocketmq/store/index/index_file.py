"""IndexFile: maps the hash of a key to positions in the commit log.

    40 bytes header              begin ms 8, end ms 8, begin position 8, end position 8, used slots 4, count 4
    4 bytes x slots              newest entry number of the chain of each hash slot, 0 = empty
    20 bytes x entries           key hash 4, position 8, seconds since begin ms 4, previous entry number 4

1. Entry 0 is never used and `count` starts at 1, so a file holds entries - 1; count == entries is full.
2. hash = abs(Java hash of "TOPIC#KEY"), 0 for -2**31; slot = hash % slots. Only the hash is kept.
3. The numbers of slots and entries are not stored in the file: they must fit its size and its contents.
4. Entries are only appended. After a crash the entries up to the first impossible one are kept and the slots
   are rebuilt from them; RocketMQ deletes such a file and loses the index of older records.
Owner: IndexService. Source: IndexFile, RocketMQ 4.9.7; disk.md 7.
"""

import contextlib
import logging
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pocketmq.store.errors import DiskFull, StoreError, StoreUnreadable
from pocketmq.store.log.mapped_file import MappedFile

log = logging.getLogger(__name__)

# Hash of a key (invariant 2), position of its record, store time in ms.
Row = tuple[int, int, int]

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_STRETCH = 1 << 20

assert _HEADER.size == HEADER_SIZE
assert _ENTRY.size == ENTRY_SIZE


def file_size(slots: int, entries: int) -> int:
    """Return the size of a file with that many slots and entries, bytes."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


class IndexFile:
    """One file. Times in ms, positions in bytes of the commit log."""

    def __init__(self, file: MappedFile, slots: int, entries: int) -> None:
        self._file = file
        self.slots = slots
        self.entries = entries
        self.begin_ms: int
        self.end_ms: int
        self.begin_position: int
        self.end_position: int
        self.used_slots: int
        self.count: int
        (
            self.begin_ms,
            self.end_ms,
            self.begin_position,
            self.end_position,
            self.used_slots,
            self.count,
        ) = _HEADER.unpack(file.read(0, HEADER_SIZE))
        self.count = max(1, self.count)
        self.entries_at = HEADER_SIZE + slots * SLOT_SIZE
        file.reserved = min(file.size, self.entries_at + self.count * ENTRY_SIZE)

    @classmethod
    def create(
        cls, folder: str, name: str, slots: int, entries: int, end_ms: int, end_position: int
    ) -> "IndexFile":
        """Create an empty file that follows one ending at `end_ms` and `end_position` (0, 0: none).

        Raises: DiskFull if there is no room for its slots; StoreUnreadable, OSError.
        """
        os.makedirs(folder, exist_ok=True)
        size = file_size(slots, entries)
        file = MappedFile.create(folder, int(name), size)
        try:
            os.rename(file.path, os.path.join(folder, name))
            file.name = name
            # The slots are written all over, so they need their blocks from the beginning.
            file.reserve(HEADER_SIZE + slots * SLOT_SIZE)
            _HEADER.pack_into(file.map, 0, end_ms, end_ms, end_position, end_position, 0, 1)
        except (OSError, StoreError):
            with contextlib.suppress(OSError):
                file.delete()
            raise
        return cls(file, slots, entries)

    @property
    def name(self) -> str:
        return os.path.basename(self._file.path)

    @property
    def full(self) -> bool:
        return self.count >= self.entries

    @property
    def empty(self) -> bool:
        return self.count <= 1

    # ------------------------------------------------------------ writing

    def put(self, rows: Sequence[Row]) -> int:
        """Append as many of the entries as fit. Returns: how many. Raises: DiskFull; nothing changed then.

        In the order of the log. For many at once there is IndexColumns.put_many, which needs numpy.
        """
        size = min(len(rows), self.entries - self.count)
        if size <= 0:
            return 0
        self.reserve(self.count + size)
        data = self._file.map
        for key_hash, position, store_ms in rows[:size]:
            number = self.count
            slot_at = HEADER_SIZE + key_hash % self.slots * SLOT_SIZE
            (previous,) = _SLOT.unpack_from(data, slot_at)
            if not 0 < previous < number:
                previous = 0
                self.used_slots += 1
            # A new file counts from the end of the one before.
            seconds = (store_ms - self.begin_ms) // 1000 if self.begin_ms > 0 else 0
            seconds = min(max(seconds, 0), 0x7FFF_FFFF)
            entry_at = self.entries_at + number * ENTRY_SIZE
            _ENTRY.pack_into(data, entry_at, key_hash, position, seconds, previous)
            _SLOT.pack_into(data, slot_at, number)
            if number <= 1:
                self.begin_ms, self.begin_position = store_ms, position
            self.end_ms, self.end_position = store_ms, position
            self.count = number + 1
        self.write_header()
        return size

    def reserve(self, count: int) -> None:
        end = self.entries_at + count * ENTRY_SIZE
        if end > self._file.reserved:
            try:
                self._file.reserve(end + _STRETCH)
            except DiskFull:
                self._file.reserve(end)

    def write_header(self) -> None:
        _HEADER.pack_into(
            self._file.map,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_position,
            self.end_position,
            self.used_slots,
            self.count,
        )

    @property
    def map(self) -> mmap.mmap:
        """Return the whole file."""
        return self._file.map

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Return True if the file may hold entries of that time. Source: IndexFile.isTimeMatched."""
        return (
            (begin_ms < self.begin_ms and end_ms > self.end_ms)
            or self.begin_ms <= begin_ms <= self.end_ms
            or self.begin_ms <= end_ms <= self.end_ms
        )

    def find(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Yield the positions of a hash, newest first, of records that may be of that time.

        begin, end: store time in ms, both included. An entry knows the second of its record only, so what is
        yielded may be up to a second outside.
        """
        data = self._file.map
        (number,) = _SLOT.unpack_from(data, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE)
        while 0 < number < self.count:
            entry_hash, position, seconds, previous = _ENTRY.unpack_from(
                data, self.entries_at + number * ENTRY_SIZE
            )
            if seconds < 0:
                return
            # The first entry counts from the end of the file before; 0 is also for a clock that was set back.
            first_ms = self.begin_ms + (seconds * 1000 if number > 1 else 0)
            if (
                entry_hash == key_hash
                and (first_ms <= end or not seconds)
                and first_ms + 999 >= begin
            ):
                yield position
            # A chain only goes back; anything else is damage, and would go round for ever.
            if first_ms + 999 < begin or previous >= number:
                return
            number = previous

    # ------------------------------------------------------------ looking after

    def data_end(self) -> int:
        """Return the position behind the last bytes that are written."""
        return self._file.data_end(0)

    def sync(self) -> None:
        """Sync the file. For the pool: it blocks. Raises: OSError."""
        self._file.sync()

    def write_again(self) -> None:
        """See MappedFile.write_again."""
        self._file.write_again(0, self._file.size)

    def close(self) -> None:
        self._file.close()

    def delete(self) -> None:
        self._file.delete()


def open_files(folder: str, slots: int, entries: int) -> list[IndexFile]:
    """Open the index files of a folder, the oldest first; slots, entries: what new ones have.

    One whose size matches no number of slots is ignored, and logged. Raises: StoreUnreadable.
    """
    files: list[IndexFile] = []
    for name in index_names(folder):
        path = os.path.join(folder, name)
        file = MappedFile(folder, 0, os.path.getsize(path), name=name)
        shape = shape_of(file.map, slots, entries) if file.size > HEADER_SIZE else None
        if shape is None:
            log.warning(
                "ignored an index file whose size matches no number of slots path=%s size=%d",
                path,
                file.size,
            )
            file.close()
            continue
        files.append(IndexFile(file, shape.slots, shape.entries))
    return files


def index_names(folder: str) -> list[str]:
    """Return the names of the index files of a folder, the oldest first. Raises: StoreUnreadable."""
    try:
        names = [name for name in os.listdir(folder) if len(name) == 17 and name.isdecimal()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnreadable(folder, error) from error
    return sorted(names)


class IndexShape(NamedTuple):
    """What an existing file says of itself; end_ms in ms, positions in bytes of the commit log.

    behind_last: the number that the next entry gets; they begin at 1.
    """

    slots: int
    entries: int
    begin_position: int
    end_position: int
    end_ms: int
    behind_last: int


def shape_of(data: mmap.mmap, slots: int, entries: int) -> IndexShape | None:
    """Return the shape of an existing file: as configured if that fits, else by its contents.

    By contents: entry 1 has the header's begin position and no predecessor, and the last entry is the
    newest of its slot. None if nothing fits, or the file has no entry to tell by.
    """
    if len(data) < HEADER_SIZE:
        return None
    _, end_ms, begin_position, end_position, _, count = _HEADER.unpack_from(data)
    fits = (slots, entries)
    if len(data) != file_size(slots, entries):
        found = _fitting(data, begin_position, count)
        if found is None:
            return None
        fits = found
    return IndexShape(*fits, begin_position, end_position, end_ms, count)


def entries_in(data: mmap.mmap, shape: IndexShape) -> Iterator[tuple[int, int]]:
    """Yield (position, hash) of a file's entries, in their order."""
    at = HEADER_SIZE + shape.slots * SLOT_SIZE
    for number in range(1, min(shape.behind_last, shape.entries)):
        key_hash, position, _, _ = _ENTRY.unpack_from(data, at + number * ENTRY_SIZE)
        yield position, key_hash


def _fitting(data: mmap.mmap, begin_position: int, count: int) -> tuple[int, int] | None:
    words = (len(data) - HEADER_SIZE) // 4
    if (len(data) - HEADER_SIZE) % 4 or count <= 1 or words < 11:
        return None
    # entries * 5 + slots = words: each possible number of slots is 5 away from the next.
    for candidate in range(words % 5 or 5, words - 9, 5):
        entry_at = HEADER_SIZE + candidate * SLOT_SIZE + ENTRY_SIZE
        if data[entry_at + 4 : entry_at + 12] != begin_position.to_bytes(8, "big", signed=True):
            continue
        found = _fits(data, candidate, (words - candidate) // 5, count)
        if found:
            return candidate, (words - candidate) // 5
    return None


def _fits(data: mmap.mmap, slots: int, entries: int, count: int) -> bool:
    if count > entries:
        return False
    entries_at = HEADER_SIZE + slots * SLOT_SIZE
    first_hash, _, _, previous = _ENTRY.unpack_from(data, entries_at + ENTRY_SIZE)
    last_hash = _ENTRY.unpack_from(data, entries_at + (count - 1) * ENTRY_SIZE)[0]
    if first_hash < 0 or last_hash < 0 or previous != 0:
        return False
    (newest,) = struct.unpack_from(">i", data, HEADER_SIZE + last_hash % slots * SLOT_SIZE)
    (of_first,) = struct.unpack_from(">i", data, HEADER_SIZE + first_hash % slots * SLOT_SIZE)
    return bool(newest == count - 1 and of_first >= 1)


def file_name(now_ms: int, *, after: str = "") -> str:
    """Return yyyyMMddHHmmssSSS of the local time, or one ms behind the name `after` if that is not earlier.

    Files are read in the order of their names, even if the clock was set back.

    >>> file_name(0, after="20261231235959999")
    '20270101000000000'
    """
    name = datetime.fromtimestamp(now_ms // 1000).strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"
    if name > after:
        return name
    try:
        last = datetime.strptime(after[:14], "%Y%m%d%H%M%S")
    except ValueError:
        # Not a time, but a number of 17 digits all the same.
        return f"{int(after) + 1:017d}"
    following = last + timedelta(milliseconds=int(after[14:]) + 1)
    return following.strftime("%Y%m%d%H%M%S") + f"{following.microsecond // 1000:03d}"
