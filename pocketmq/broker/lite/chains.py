"""Chains: the entries of all lite topics in one sequence of files, each linked to its topic's earlier ones.

    store/lite/entries/NUMBER, of 2 ** 17 entries; an entry, little-endian:
    key 8 (of the lite topic), position << 16 | parent 8, offset 4, back 4, jump 4, store time s 4

1. Entries are in the order of the log, so the oldest files go with the log's oldest.
2. `back` and `jump` are distances to earlier entries of the same lite topic, 0 for none: `back` to the last
   one, `jump` further, so that any offset is found in logarithmic time (E. Myers, Applicative random-access
   stacks, 1983).
3. A key is never 0: the first entry that is 0 is the end. After a power cut all behind it is cleared, and
   read from the log anew.
Blocks are allocated before they are written: a full disk refuses, and does not kill.
"""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_ENTRY = Struct("<QQIIII")
_SHIFT = 17
_COUNT = 1 << _SHIFT
_SIZE = _COUNT * _ENTRY.size
_DISTANCE_MAX = (1 << 32) - 1


class ChainEntry(NamedTuple):
    key: int
    place: int
    offset: int
    back: int
    jump: int
    store_s: int

    @property
    def position(self) -> int:
        """Return the position of the record in the log."""
        return self.place >> 16

    @property
    def parent(self) -> int:
        return self.place & 0xFFFF


class Chains:
    """See the head of the file. first, end: the numbers of the entries that are there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, mmap.mmap] = {}
        self.first = self.end = 0

    def open(self, at_least: int) -> None:
        """Find the end. at_least: so many entries are known to be on the disk. Raises: OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        numbers = sorted(int(each.name) for each in self._folder.iterdir() if each.name.isdigit())
        if not numbers:
            return
        self.first = self.end = numbers[0] << _SHIFT
        for number in numbers:
            if number << _SHIFT != self.end:
                break
            file = self._map(number)
            known = max(0, min(_COUNT, at_least - self.end))
            count = known + sum(1 for _ in _written(file, known))
            self.end += count
            if count < _COUNT:
                break
        self.cut(self.end)

    def _map(self, number: int) -> mmap.mmap:
        path = self._folder / f"{number:010d}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
            file = self._files[number] = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        return file

    def reserve(self) -> None:
        """Make room for another entry. Raises: OSError."""
        number = self.end >> _SHIFT
        if number not in self._files:
            self._map(number)

    def append(self, key: int, place: int, offset: int, previous: int, store_s: int) -> int:
        """Add an entry, for which `reserve` has made room. previous: the number of the topic's last one, or
        -1. Returns: its number."""
        at = self.end
        back = at - previous if self.first <= previous else 0
        if back > _DISTANCE_MAX:
            back = 0
        values = (key, place, offset, back, self._jump(at, back), store_s)
        _ENTRY.pack_into(self._files[at >> _SHIFT], (at & _COUNT - 1) * _ENTRY.size, *values)
        self.end = at + 1
        return at

    def _jump(self, at: int, back: int) -> int:
        if not back:
            return 0
        parent = self.get(at - back)
        if not parent.jump or (first := at - back - parent.jump) < self.first:
            return back
        middle = self.get(first)
        if not middle.jump or (second := first - middle.jump) < self.first:
            return back
        is_twin = parent.offset - middle.offset == middle.offset - self.get(second).offset
        distance = at - second if is_twin else back
        return distance if distance <= _DISTANCE_MAX else back

    def get(self, number: int) -> ChainEntry:
        """Return an entry from `first` on."""
        file = self._files[number >> _SHIFT]
        return ChainEntry(*_ENTRY.unpack_from(file, (number & _COUNT - 1) * _ENTRY.size))

    def earliest(self, last: int, position: int) -> int:
        """Return the number of the first entry of a topic at or behind a position; `last` is behind it."""
        at, entry = last, self.get(last)
        while entry.back:
            for distance in (entry.jump, entry.back):
                if at - distance >= self.first:
                    found = self.get(at - distance)
                    if found.position >= position:
                        at, entry = at - distance, found
                        break
            else:
                return at
        return at

    def up_to(self, last: int, offset: int) -> int:
        """Return the number of the last entry whose offset is not above this one; -1 if all are above."""
        at, entry = last, self.get(last)
        while entry.offset > offset:
            distance = entry.jump
            if (
                not distance
                or at - distance < self.first
                or self.get(at - distance).offset < offset
            ):
                distance = entry.back
            if not distance or at - distance < self.first:
                return -1
            at -= distance
            entry = self.get(at)
        return at

    def since(self, number: int) -> Iterator[tuple[int, ChainEntry]]:
        """Yield the entries from a number on."""
        at = max(number, self.first)
        while at < self.end:
            begin = at & _COUNT - 1
            for values in _written(self._files[at >> _SHIFT], begin):
                if at >= self.end:
                    return
                yield at, ChainEntry(*values)
                at += 1

    def cut(self, end: int) -> None:
        """Drop the entries from a number on."""
        self.end = end
        keep = end >> _SHIFT
        for number in [each for each in self._files if each > keep]:
            self._drop(number)
        for path in self._folder.iterdir():
            if path.name.isdigit() and int(path.name) > keep:
                path.unlink()
        file = self._files.get(keep)
        if file is not None:
            begin = (end & _COUNT - 1) * _ENTRY.size
            file[begin:] = bytes(_SIZE - begin)

    def drop_before(self, position: int) -> None:
        """Drop the files all of whose entries are before a position of the log (invariant 1)."""
        while (self.first >> _SHIFT) < (self.end >> _SHIFT):
            following = ((self.first >> _SHIFT) + 1) << _SHIFT
            if self.get(following - 1).position >= position:
                return
            self._drop(self.first >> _SHIFT)
            self.first = following

    def _drop(self, number: int) -> None:
        self._files.pop(number).close()
        (self._folder / f"{number:010d}").unlink()

    def flush(self) -> None:
        """Bring all to the disk. Raises: OSError."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _written(file: mmap.mmap, begin: int) -> Iterator[tuple[int, ...]]:
    """Yield the values of a file's entries from one on, up to the first that is not written."""
    with memoryview(file) as whole, whole[begin * _ENTRY.size :] as rest:
        for values in _ENTRY.iter_unpack(rest):
            if not values[0]:
                return
            yield values
