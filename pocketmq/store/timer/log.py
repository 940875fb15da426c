"""TimerLog: one unit for each waiting message. Source: TimerLog, TimerMessageStore, 5.5.0.

    timerlog/%020d, units of 52 bytes, big-endian
       0  4  size, 52
       4  8  previous: position of the previous unit of the same second, -1: none
      12  4  magic: 1, | 2 it goes round once more when it is due, | 4 it recalls another message
      16  8  write time, ms, a whole second
      24  4  delay, ms: due time less write time; negative if it came late
      28  8  position of the waiting record in the commit log
      36  4  size of that record
      40  4  Java hashCode of the topic that it is for
      44  8  0

1. A unit needs 52 + 16 free bytes in its file; else: int free bytes, long 0, int CBD43194, next file.
2. Zeros where a unit's size should be: nothing was written there yet. The log is never truncated.
3. A unit's previous one stands before it; a chain that says otherwise is broken, and the second's other units
   are searched for.
Owner: TimerService.
"""

import logging
import struct
from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.store.log.mapped_file_queue import MappedFileQueue
from pocketmq.store.timer.wheel import NONE, Slot

log = logging.getLogger(__name__)

NORMAL, ROLL, DELETE = 1, 2, 4
UNIT_SIZE = 52
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqI")
_BLANK_MAGIC = 0xCBD43194
_SPARE = 16
_MAGIC_MAX = 15
# Two bits less than a signed number of 64 has: see Due.
_POSITION_MAX = 1 << 60
_RESERVE_STEP = 1 << 20
# How much is searched for the units of a second whose chain is broken.
_UNCHAINED_SIZE = 50_000 * UNIT_SIZE


class TimerUnit(NamedTuple):
    """One waiting message; write_ms and delay_ms make its due time."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    position: int
    size: int
    topic_hash: int

    @property
    def second(self) -> int:
        """Return the second in which it is due, or goes round."""
        return (self.write_ms + self.delay_ms) // 1000


class TimerLog:
    """A sequence of files that only grows at its end."""

    def __init__(self, folder: str, file_size: int) -> None:
        self._files = MappedFileQueue(folder, file_size)
        self.end = 0

    def load(self, from_position: int) -> None:
        """Find the files and the end of the log, searching from a position known to be in it.

        Raises: StoreForeign, StoreUnreadable.
        """
        self._files.load()
        low, high = self._files.min_position, self._files.end_position
        at = from_position if low <= from_position < high else low
        self.end, end = high, at
        for position, _ in self.walk(at):
            end = position + UNIT_SIZE
        self.end = end

    @property
    def begin(self) -> int:
        """Return the position of the first byte."""
        return self._files.min_position

    @property
    def file_size(self) -> int:
        return self._files.file_size

    def append(self, unit: TimerUnit) -> int:
        """Append a unit; return its position. Raises: DiskFull."""
        files = self._files
        file = files.file_at(self.end)
        if file is not None and file.end - self.end < UNIT_SIZE + _SPARE:
            at = self.end - file.start
            if file.size - at >= _BLANK.size:
                file.reserve(file.size)
                file.map[at : at + _BLANK.size] = _BLANK.pack(file.size - at, 0, _BLANK_MAGIC)
            self.end = file.end
            file = files.file_at(self.end)
        if file is None:
            file = files.add(self.end)
        at = self.end - file.start
        if at + UNIT_SIZE > file.reserved:
            file.reserve(at + _RESERVE_STEP)
        file.map[at : at + UNIT_SIZE] = _UNIT.pack(UNIT_SIZE, *unit, 0)
        position = self.end
        self.end += UNIT_SIZE
        return position

    def read(self, position: int) -> TimerUnit | None:
        """Return the unit that begins at a position; None if absent."""
        file = self._files.file_at(position) if position >= 0 else None
        if file is None or position + UNIT_SIZE > file.end:
            return None
        return unit_at(file.view, position - file.start)

    def chain(self, slot: Slot) -> Iterator[tuple[int, TimerUnit | None]]:
        """Yield the units of a second with their positions, from the last one backwards.

        Where the chain is broken: the unit as it is, None if it cannot be read, and the others by their time.
        """
        at, behind, first, number = slot.last, self.end, NONE, 0
        while at != NONE:
            unit = self.read(at)
            is_of = unit is not None and unit.second == slot.second
            if is_of:
                behind = at
            yield at, unit
            if unit is None or not is_of or not NONE <= unit.previous < at:
                log.error(
                    "a unit of the timer log is missing second=%d position=%d", slot.second, at
                )
                yield from self._unchained(slot, behind)
                return
            number += -1 if unit.magic & DELETE else 1
            at, first = unit.previous, at
        if (first, number) != (slot.first, slot.number):
            yield from self._passed_over(slot)

    def _passed_over(self, slot: Slot) -> Iterator[tuple[int, TimerUnit]]:
        """Yield the units that a chain leaves out which is whole, but not what the wheel says of it."""
        chained, at = set(), slot.last
        while at != NONE and (unit := self.read(at)) is not None:
            chained.add(at)
            at = unit.previous
        left_out = [each for each in self._unchained(slot, slot.last) if each[0] not in chained]
        if left_out:
            log.error(
                "the chain of the timer log passes over units second=%d count=%d",
                slot.second,
                len(left_out),
            )
        yield from left_out

    def _unchained(self, slot: Slot, end: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield the same before `end`, where the chain is broken: by their own time, not by each other."""
        end, found = min(end, slot.first + _UNCHAINED_SIZE), []
        for file in self._files.files:
            whole = max(0, slot.first - file.start) // UNIT_SIZE * UNIT_SIZE
            for position in range(file.start + whole, min(end, file.end), UNIT_SIZE):
                unit = self.read(position)
                if unit is not None and unit.second == slot.second:
                    found.append((position, unit))
        yield from reversed(found)

    def neighbour(self, position: int, step: int) -> TimerUnit | None:
        """Return the unit that is `step` units behind the one at a position, or before it; None if absent."""
        size = self.file_size
        in_file = (size - UNIT_SIZE - _SPARE) // UNIT_SIZE + 1
        if position % size % UNIT_SIZE:
            return None
        file, place = divmod(
            position // size * in_file + position % size // UNIT_SIZE + step, in_file
        )
        at = file * size + place * UNIT_SIZE
        return self.read(at) if self.begin <= at < self.end else None

    def walk(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield positions and units, from the unit at a position to the end of the log."""
        while position < self.end:
            unit = self.read(position)
            if unit is not None:
                yield position, unit
                position += UNIT_SIZE
                continue
            file = self._files.file_at(position)
            # A file's end is skipped when another file follows it.
            if file is None or file.end - position >= UNIT_SIZE + _SPARE:
                return
            if self._files.file_at(file.end) is None:
                return
            position = file.end

    def cut(self, position: int) -> None:
        """End the log here. Zeros replace what stood behind (2), so that no start finds it again."""
        for file in self._files.files:
            first, end = max(position, file.start), min(self.end, file.end)
            if first < end:
                file.map[first - file.start : end - file.start] = bytes(end - first)
        self.end = position

    def delete_before(self, min_position: int) -> int:
        """Delete the files whose last unit's record is no longer in the commit log.

        Returns: how many.
        """
        count = 0
        while len(self._files.files) > 1:
            file = self._files.files[0]
            last_at = (file.size - UNIT_SIZE - _SPARE) // UNIT_SIZE * UNIT_SIZE
            last = self.read(file.start + last_at)
            if last is None or last.position >= min_position:
                break
            file.delete()
            self._files.files.pop(0)
            count += 1
        return count

    def sync(self) -> None:
        """Sync what was written; for the pool. Raises: OSError."""
        for file in self._files.files[-2:]:
            file.sync()

    def close(self) -> None:
        self._files.close()


assert _UNIT.size == UNIT_SIZE


def unit_at(data: memoryview, at: int) -> TimerUnit | None:
    """Return the unit at byte `at` of a file; None if the bytes are no unit."""
    size, *fields, _ = _UNIT.unpack_from(data, at)
    unit = TimerUnit(*fields)
    whole = size == UNIT_SIZE and 0 <= unit.magic <= _MAGIC_MAX
    return unit if whole and 0 <= unit.position < _POSITION_MAX else None


def units_of(data: memoryview) -> Iterator[tuple[int, TimerUnit | None]]:
    """Yield the places of a file's units and the units; None for bytes that are no unit."""
    for at in range(0, len(data) - UNIT_SIZE - _SPARE + 1, UNIT_SIZE):
        unit = unit_at(data, at)
        if unit is not None or any(data[at : at + UNIT_SIZE]):
            yield at, unit


def unit_of(at_ms: int, write_ms: int, roll_seconds: int) -> tuple[int, int]:
    """Return the second (in ms) in whose slot a message due at `at_ms` goes, and its unit's magic.

    A message due later than `roll_seconds` goes into a nearer one, and goes round. Source:
    TimerMessageStore.doEnqueue, RocketMQ 5.5.0.

    >>> unit_of(5_000, 1_000, 100) == (5_000, NORMAL)
    True
    >>> unit_of(500_000, 1_000, 100) == (101_000, NORMAL | ROLL)
    True
    """
    ahead = (at_ms - write_ms) // 1000
    if ahead < roll_seconds:
        return at_ms, NORMAL
    short = ahead - roll_seconds < roll_seconds // 3
    return write_ms + (roll_seconds // 2 if short else roll_seconds) * 1000, NORMAL | ROLL
