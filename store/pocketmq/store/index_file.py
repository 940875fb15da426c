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
import mmap
import os
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy
from numpy.typing import NDArray

from pocketmq.store.errors import DiskFull, StoreError
from pocketmq.store.mapped_file import MappedFile

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_ENTRY_TYPE = numpy.dtype(
    [("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_STRETCH = 1 << 20

assert _HEADER.size == HEADER_SIZE
assert _ENTRY_TYPE.itemsize == _ENTRY.size == ENTRY_SIZE


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
        self._entries_at = HEADER_SIZE + slots * SLOT_SIZE
        self._slot_array: NDArray[Any] | None = None
        self._entry_array: NDArray[Any] | None = None
        file.reserved = min(file.size, self._entries_at + self.count * ENTRY_SIZE)

    @classmethod
    def create(
        cls, folder: str, name: str, slots: int, entries: int, end_ms: int, end_position: int
    ) -> "IndexFile":
        """Create an empty file that follows one ending at `end_ms` and `end_position` (0, 0: none).

        Raises: DiskFull if there is no room for its slots; StoreUnreadable, OSError.
        """
        os.makedirs(folder, exist_ok=True)
        size = file_size(slots, entries)
        path = os.path.join(folder, name)
        file = MappedFile.create(folder, int(name), size)
        try:
            os.rename(file.path, path)
            file.path = path
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

    def put_many(
        self, hashes: NDArray[Any], positions: NDArray[Any], store_ms: NDArray[Any]
    ) -> int:
        """Append as many of the entries as fit. Returns: how many. Raises: DiskFull; nothing changed then.

        hashes: invariant 2; all three int64 arrays of one length, in the order of the log.
        """
        size = min(len(hashes), self.entries - self.count)
        if size <= 0:
            return 0
        first = self.count
        self._reserve(first + size)
        hashes, positions, store_ms = hashes[:size], positions[:size], store_ms[:size]
        slot_array, entry_array = self._arrays()
        numbers = numpy.arange(first, first + size)
        slot = hashes % self.slots
        before = slot_array[slot].astype(numpy.int64)
        before[(before <= 0) | (before >= first)] = 0
        self._link(slot_array, slot, numbers, before)
        new = entry_array[first : first + size]
        new["hash"] = hashes
        new["position"] = positions
        new["seconds"] = self._seconds(store_ms)
        new["previous"] = before
        if first <= 1:
            self.begin_ms, self.begin_position = int(store_ms[0]), int(positions[0])
        self.end_ms, self.end_position = int(store_ms[-1]), int(positions[-1])
        self.count = first + size
        self._write_header()
        return size

    def _link(
        self,
        slot_array: NDArray[Any],
        slot: NDArray[Any],
        numbers: NDArray[Any],
        before: NDArray[Any],
    ) -> None:
        """Link the chains within the batch, then update the slots' newest entries; completes `before`."""
        order = numpy.argsort(slot, kind="stable")
        ordered = slot[order]
        same = ordered[1:] == ordered[:-1]
        heads = order[numpy.concatenate(([True], ~same))]
        self.used_slots += int(numpy.count_nonzero(before[heads] == 0))
        before[order[1:][same]] = numbers[order[:-1][same]]
        newest = order[numpy.concatenate((~same, [True]))]
        slot_array[slot[newest]] = numbers[newest]

    def _seconds(self, store_ms: NDArray[Any]) -> NDArray[Any]:
        """Return whole seconds since the file began; a new file counts from the end of the previous one."""
        if self.begin_ms <= 0:
            seconds = (store_ms - int(store_ms[0])) // 1000
        elif self.count <= 1:
            seconds = (store_ms - int(store_ms[0])) // 1000
            seconds[0] = (int(store_ms[0]) - self.begin_ms) // 1000
        else:
            seconds = (store_ms - self.begin_ms) // 1000
        result: NDArray[Any] = numpy.clip(seconds, 0, 0x7FFF_FFFF)
        return result

    def _reserve(self, count: int) -> None:
        end = self._entries_at + count * ENTRY_SIZE
        if end > self._file.reserved:
            try:
                self._file.reserve(end + _STRETCH)
            except DiskFull:
                self._file.reserve(end)

    def _write_header(self) -> None:
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

    def _arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._slot_array is None or self._entry_array is None:
            whole: mmap.mmap = self._file.map
            self._slot_array = numpy.frombuffer(whole, ">i4", self.slots, HEADER_SIZE)
            self._entry_array = numpy.frombuffer(whole, _ENTRY_TYPE, self.entries, self._entries_at)
        return self._slot_array, self._entry_array

    # ------------------------------------------------------------ reading

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Return True if the file may hold entries of that time. Source: IndexFile.isTimeMatched."""
        return (
            (begin_ms < self.begin_ms and end_ms > self.end_ms)
            or self.begin_ms <= begin_ms <= self.end_ms
            or self.begin_ms <= end_ms <= self.end_ms
        )

    def find(self, key_hash: int, found: list[int], count_max: int, begin: int, end: int) -> None:
        """Add the positions of a hash, newest first, until `found` has count_max.

        begin, end: store time in ms, both included.
        """
        data = self._file.map
        (number,) = struct.unpack_from(">i", data, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE)
        while 0 < number < self.count and len(found) < count_max:
            entry_hash, position, seconds, previous = _ENTRY.unpack_from(
                data, self._entries_at + number * ENTRY_SIZE
            )
            if seconds < 0:
                return
            at_ms = self.begin_ms + seconds * 1000
            if entry_hash == key_hash and begin <= at_ms <= end:
                found.append(position)
            # A chain only goes back; anything else is damage, and would go round for ever.
            if at_ms < begin or previous >= number:
                return
            number = previous

    # ------------------------------------------------------------ recovery

    def repair(
        self,
        log_end: int,
        *,
        is_last: bool,
        known_position: int,
        known_ms: int,
        store_ms_at: Callable[[int], int],
    ) -> int | None:
        """Keep what is certain after a crash (invariant 4).

        Args: is_last: no file follows, so its last record may lack entries, unless it is of known_ms or later
        and before known_position: then the checkpoint covers it; store_ms_at: store time of the record at a
        position, -1 if there is none.
        Returns: the position of the record from which on entries must be rebuilt, -1 if no entry is left;
        None if the file is whole.
        """
        slot_array, entry_array = self._arrays()
        limit = max(1, min(self.entries, (self._file.data_end(0) - self._entries_at) // ENTRY_SIZE))
        size = _count_good(entry_array[1:limit], log_end)
        again: int | None = None
        if is_last or size < self.entries - 1:
            if size == 0:
                return -1
            positions = entry_array["position"][1 : size + 1]
            again = int(positions[-1])
            if is_last and again < known_position and store_ms_at(again) >= known_ms:
                again = known_position
            size = int(numpy.searchsorted(positions, again))
        kept = entry_array[1 : size + 1]
        slot_array[:] = 0
        self.used_slots = 0
        self.count = size + 1
        if size:
            before = numpy.zeros(size, numpy.int64)
            slot = kept["hash"].astype(numpy.int64) % self.slots
            self._link(slot_array, slot, numpy.arange(1, size + 1), before)
            kept["previous"] = before
            self._set_ends(int(kept["position"][0]), int(kept["position"][-1]), store_ms_at)
        else:
            self.end_ms, self.end_position = self.begin_ms, self.begin_position
        entry_array[size + 1 : limit] = numpy.zeros((), _ENTRY_TYPE)
        self._write_header()
        return again

    def _set_ends(self, first: int, last: int, store_ms_at: Callable[[int], int]) -> None:
        """Set the header's times from the records, if they exist: it may be older than the entries."""
        if self.begin_ms <= 0 or self.begin_position != first:
            self.begin_ms = max(self.begin_ms, store_ms_at(first))
        self.begin_position, self.end_position = first, last
        self.end_ms = max(self.begin_ms, store_ms_at(last))

    def sync(self) -> None:
        """Sync the file. For the pool: it blocks. Raises: OSError."""
        self._file.sync()

    def write_again(self) -> None:
        """See MappedFile.write_again."""
        self._file.write_again(0, self._file.size)

    def close(self) -> None:
        self._slot_array = self._entry_array = None
        self._file.close()

    def delete(self) -> None:
        self._slot_array = self._entry_array = None
        self._file.delete()


def _count_good(entries: NDArray[Any], log_end: int) -> int:
    """Return how many entries from the first on can be real: rising positions inside the log."""
    positions = entries["position"].astype(numpy.int64)
    good = (positions >= 0) & (positions < log_end) & (entries["hash"] >= 0)
    # An entry that was never written is all zeros; a written one never is, unless its hash is 0.
    good &= (positions != 0) | (entries["hash"] != 0)
    good[1:] &= positions[1:] >= positions[:-1]
    bad = numpy.flatnonzero(~good)
    return int(bad[0]) if len(bad) else len(entries)


def geometry(file: MappedFile, slots: int, entries: int) -> tuple[int, int] | None:
    """Return (slots, entries) of an existing file: the configured ones if they fit, else by its contents.

    By contents: entry 1 has the header's begin position and no predecessor, and the last entry is the
    newest of its slot. None if nothing fits, or the file has no entry to tell by.
    """
    if file.size == file_size(slots, entries):
        return slots, entries
    _, _, begin_position, _, _, count = _HEADER.unpack(file.read(0, HEADER_SIZE))
    words = (file.size - HEADER_SIZE) // 4
    if (file.size - HEADER_SIZE) % 4 or count <= 1 or words < 11:
        return None
    data = file.map
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
