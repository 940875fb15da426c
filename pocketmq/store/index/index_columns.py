"""Many entries of an index file at once, as columns.

Imports numpy: see IndexService for when. Owner: IndexFile, whose invariants hold here.
"""

from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray

from pocketmq.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, IndexFile

_ENTRY_TYPE = numpy.dtype(
    [("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
assert _ENTRY_TYPE.itemsize == ENTRY_SIZE


class IndexColumns:
    """Slots and entries of one file; times in ms, positions in bytes of the commit log."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._slot_array = numpy.frombuffer(file.map, ">i4", file.slots, HEADER_SIZE)
        self._entry_array = numpy.frombuffer(file.map, _ENTRY_TYPE, file.entries, file.entries_at)

    def put_many(
        self, hashes: NDArray[Any], positions: NDArray[Any], store_ms: NDArray[Any]
    ) -> int:
        """Append as many of the entries as fit. Returns: how many. Raises: DiskFull; nothing changed then.

        hashes: invariant 2; all three int64 arrays of one length, in the order of the log.
        """
        file = self._file
        size = min(len(hashes), file.entries - file.count)
        if size <= 0:
            return 0
        first = file.count
        file.reserve(first + size)
        hashes, positions, store_ms = hashes[:size], positions[:size], store_ms[:size]
        slot_array, entry_array = self._slot_array, self._entry_array
        numbers = numpy.arange(first, first + size)
        slot = hashes % file.slots
        before = slot_array[slot].astype(numpy.int64)
        before[(before <= 0) | (before >= first)] = 0
        self._link(slot_array, slot, numbers, before)
        new = entry_array[first : first + size]
        new["hash"] = hashes
        new["position"] = positions
        new["seconds"] = self._seconds(store_ms)
        new["previous"] = before
        if first <= 1:
            file.begin_ms, file.begin_position = int(store_ms[0]), int(positions[0])
        file.end_ms, file.end_position = int(store_ms[-1]), int(positions[-1])
        file.count = first + size
        file.write_header()
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
        self._file.used_slots += int(numpy.count_nonzero(before[heads] == 0))
        before[order[1:][same]] = numbers[order[:-1][same]]
        newest = order[numpy.concatenate((~same, [True]))]
        slot_array[slot[newest]] = numbers[newest]

    def _seconds(self, store_ms: NDArray[Any]) -> NDArray[Any]:
        """Return whole seconds since the file began; a new file counts from the end of the previous one."""
        file = self._file
        if file.begin_ms <= 0:
            seconds = (store_ms - int(store_ms[0])) // 1000
        elif file.count <= 1:
            seconds = (store_ms - int(store_ms[0])) // 1000
            seconds[0] = (int(store_ms[0]) - file.begin_ms) // 1000
        else:
            seconds = (store_ms - file.begin_ms) // 1000
        result: NDArray[Any] = numpy.clip(seconds, 0, 0x7FFF_FFFF)
        return result

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
        position, -1 if no record begins there.
        Returns: the position of the record from which on entries must be rebuilt, -1 if no entry is left;
        None if the file is whole.
        """
        file = self._file
        slot_array, entry_array = self._slot_array, self._entry_array
        limit = max(1, min(file.entries, (file.data_end() - file.entries_at) // ENTRY_SIZE))
        size = _count_good(entry_array[1:limit], log_end)
        again: int | None = None
        if is_last or size < file.entries - 1:
            if size == 0:
                return -1
            positions = entry_array["position"][1 : size + 1]
            again = int(positions[-1])
            if is_last and again < known_position and store_ms_at(again) >= known_ms:
                again = known_position
            size = int(numpy.searchsorted(positions, again))
        kept = entry_array[1 : size + 1]
        slot_array[:] = 0
        file.used_slots = 0
        file.count = size + 1
        if size:
            before = numpy.zeros(size, numpy.int64)
            slot = kept["hash"].astype(numpy.int64) % file.slots
            self._link(slot_array, slot, numpy.arange(1, size + 1), before)
            kept["previous"] = before
            self._set_ends(int(kept["position"][0]), int(kept["position"][-1]), store_ms_at)
        else:
            file.end_ms, file.end_position = file.begin_ms, file.begin_position
        entry_array[size + 1 : limit] = numpy.zeros((), _ENTRY_TYPE)
        file.write_header()
        return again

    def _set_ends(self, first: int, last: int, store_ms_at: Callable[[int], int]) -> None:
        """Set the header's times from the records, if they exist: it may be older than the entries."""
        file = self._file
        if file.begin_ms <= 0 or file.begin_position != first:
            file.begin_ms = max(file.begin_ms, store_ms_at(first))
        file.begin_position, file.end_position = first, last
        file.end_ms = max(file.begin_ms, store_ms_at(last))


def _count_good(entries: NDArray[Any], log_end: int) -> int:
    """Return how many entries from the first on can be real: rising positions inside the log."""
    positions = entries["position"].astype(numpy.int64)
    good = (positions >= 0) & (positions < log_end) & (entries["hash"] >= 0)
    # An entry that was never written is all zeros; a written one never is, unless its hash is 0.
    good &= (positions != 0) | (entries["hash"] != 0)
    good[1:] &= positions[1:] >= positions[:-1]
    bad = numpy.flatnonzero(~good)
    return int(bad[0]) if len(bad) else len(entries)
