"""TimerWheel: which units of the timer log are due in which second. Source: TimerWheel, RocketMQ 5.5.0.

    timerwheel: SLOTS slots of 32 bytes, big-endian; the slot of second t is t mod SLOTS
       0  8  time: the second that the slot stands for now
       8  8  first: position of its first unit in the timer log
      16  8  last: position of its last unit; units are chained backwards from it
      24  4  number of messages; a recall lowers it by one
      28  4  magic, 0

1. Slots are not cleared when their messages are delivered: a slot is valid only if its time is the requested
   second.
2. Written by pwrite, not through a map: a full disk is an error here, not a SIGBUS, and what was written
   survives the end of the process. The file is 38,707,200 bytes long, almost all of them holes.
Owner: TimerService.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.store.errors import StoreForeign, StoreUnreadable
from pocketmq.store.log.descriptors import close_file, open_file, open_sized
from pocketmq.store.log.mapped_file import refusal

SLOTS = 2 * 7 * 24 * 3600
_SLOT = struct.Struct(">qqqii")
_SIZE = SLOTS * _SLOT.size
_READ_SIZE = 32 << 12
NONE = -1


class Slot(NamedTuple):
    """One second. first and last are positions in the timer log, NONE if nothing is due."""

    second: int
    first: int
    last: int
    number: int


class TimerWheel:
    """The file, created when it is first written."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def load(self, *, read_only: bool = False) -> None:
        """Open the file if it exists. Raises: StoreForeign, StoreUnreadable."""
        try:
            self._descriptor = open_file(self._path, os.O_RDONLY if read_only else os.O_RDWR)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreUnreadable(self._path, error) from error
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            # A crash came between its creation and its first slot.
            close_file(self._descriptor)
            self._descriptor = -1
        elif size != _SIZE:
            raise StoreForeign(
                self._path,
                f"a timer wheel has {_SIZE} bytes, but this file has {size}: its broker's "
                f"timerWheelSlots was changed, or the file was truncated. Restore the complete file",
            )

    def get(self, second: int) -> Slot:
        """Return what is due in a second (invariant 1)."""
        if self._descriptor < 0:
            return Slot(second, NONE, NONE, 0)
        data = os.pread(self._descriptor, _SLOT.size, second % SLOTS * _SLOT.size)
        time, first, last, number, _ = _SLOT.unpack(data)
        if time != second:
            return Slot(second, NONE, NONE, 0)
        return Slot(second, first, last, number)

    def coming(self, second: int, count: int) -> Iterator[Slot]:
        """Yield those of the next `count` seconds that have a unit, in order."""
        at, end = second, second + min(count, SLOTS)
        while self._descriptor >= 0 and at < end:
            place = at % SLOTS
            step = min(_READ_SIZE // _SLOT.size, end - at, SLOTS - place)
            data = os.pread(self._descriptor, step * _SLOT.size, place * _SLOT.size)
            for number, (time, first, last, size, _) in enumerate(_SLOT.iter_unpack(data)):
                if time == at + number and last != NONE:
                    yield Slot(time, first, last, size)
            at += step

    def empty(self, seconds: range) -> None:
        """Empty the slots of these seconds. Raises: as `put`."""
        for slot in self.written():
            if slot.second in seconds:
                self.put(Slot(slot.second, NONE, NONE, 0))

    def written(self) -> Iterator[Slot]:
        """Yield every slot that has a unit, of whatever round; what was never written is skipped."""
        at = 0
        while self._descriptor >= 0:
            try:
                at = os.lseek(self._descriptor, at, os.SEEK_DATA)
                end = os.lseek(self._descriptor, at, os.SEEK_HOLE)
            except OSError:
                return  # no data behind `at`
            at -= at % _SLOT.size
            data = os.pread(self._descriptor, min(end - at, _READ_SIZE), at)
            data = data[: len(data) // _SLOT.size * _SLOT.size]
            if not data:
                return
            for second, first, last, number, _ in _SLOT.iter_unpack(data):
                if second and last != NONE:
                    yield Slot(second, first, last, number)
            at += len(data)

    def next(self, from_ms: int, end_ms: int) -> int:
        """Return the first second that has a unit, in ms, or end_ms if that comes first; reads all."""
        seconds = (slot.second for slot in self.written() if slot.second * 1000 >= from_ms)
        return min(min(seconds, default=end_ms // 1000) * 1000, end_ms)

    def put(self, slot: Slot) -> None:
        """Write a slot. Raises: DiskFull, StoreUnreadable."""
        try:
            if self._descriptor < 0:
                self._descriptor = open_sized(self._path, _SIZE)
            data = _SLOT.pack(slot.second, slot.first, slot.last, slot.number, 0)
            os.pwrite(self._descriptor, data, slot.second % SLOTS * _SLOT.size)
        except OSError as error:
            raise refusal(self._path, error) from error

    def sync(self) -> None:
        """Sync what was written; for the pool. Raises: OSError."""
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            close_file(self._descriptor)
            self._descriptor = -1


assert _SLOT.size == 32
assert _SIZE == 38_707_200
