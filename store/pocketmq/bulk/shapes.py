"""Single properties of many records that have few shapes: the same names, with values of the same sizes.

A producer's messages mostly have one shape, or a few. So the properties of the first record of each size are
split, and all others of that size are compared with it, whole: they must have the same names and separators
in the same places, and no separator elsewhere. Then a value is a slice at one place of each record. Records
that differ teach another shape; where there are many, properties.PropertyTable searches each for separators.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.arrays import Bools, Int64s
from pocketmq.bulk.gather import gather, gather_at, of_one_size, to_text, windows

Bytes = npt.NDArray[np.uint8]

# More shapes, or fewer records of each, cost as much as a search for separators.
_SHAPES_MAX = 16
_ROWS_EACH = 64
# So does comparing records of which fewer than one in so many have the shape of the first.
_LEAST_SHARE = 8
# Properties of a batch that may be copied, bytes.
_SIZE_MAX = 1 << 24
# Records that numpy compares in one run.
_RUN = 64


class Shape(NamedTuple):
    """Where one record has its properties.

    values: (start, end) of each by its name. fixed: the bytes of names and separators, 0 where values are.
    limits: see _compare().
    """

    values: dict[bytes, tuple[int, int]]
    fixed: Bytes
    limits: Bytes


def shape_of(text: bytes) -> Shape | None:
    """Split the properties of one record; None where only Java's rules do, or a name comes twice."""
    fixed = np.frombuffer(text, np.uint8).copy()
    limits = np.full(len(text), 255, np.uint8)
    values: dict[bytes, tuple[int, int]] = {}
    at = 0
    while at < len(text):
        end = text.find(b"\x02", at)
        end = len(text) if end < 0 else end
        name, _, value = text[at:end].partition(b"\x01")
        if not name or not value or b"\x01" in value or name in values:
            return None
        start = at + len(name) + 1
        values[name] = (start, end)
        fixed[start:end] = 0
        limits[start:end] = 2
        at = end + 1
    return Shape(values, fixed, limits)


class _Alike(NamedTuple):
    """Records of one shape. rows: which, or None for all. block: their properties, (n, size)."""

    shape: Shape
    rows: Int64s | None
    block: Bytes


class ShapedProperties:
    """Properties at starts[i]:ends[i] of some data, if all of them have one of a few shapes."""

    def __init__(self, data: pa.Buffer, starts: Int64s, alike: list[_Alike]) -> None:
        self._data = data
        self._starts = starts
        self._alike = alike

    @classmethod
    def of(cls, data: pa.Buffer, starts: Int64s, ends: Int64s) -> "ShapedProperties | None":
        """Compare all records; None if they have too many shapes, or any that only Java's rules divide."""
        sizes = ends - starts
        if int(sizes.sum()) > _SIZE_MAX:
            return None
        counts = np.bincount(sizes)
        kinds = np.flatnonzero(counts)
        room = min(_SHAPES_MAX, max(1, len(starts) // _ROWS_EACH)) - len(kinds)
        if room < 0:
            return None
        waiting: list[tuple[int, Int64s | None]] = (
            [(int(kinds[0]), None)]
            if len(kinds) == 1
            else [(size, np.flatnonzero(sizes == size)) for size in kinds.tolist()]
        )
        found: list[_Alike] = []
        while waiting:
            size, rows = waiting.pop()
            places = starts if rows is None else starts[rows]
            first = int(places[0])
            shape = shape_of(bytes(memoryview(data)[first : first + size]))
            if shape is None:
                return None
            block, bad = _compare(data, places, size, shape)
            if bad is not None:
                room -= 1
                if room < 0 or _LEAST_SHARE * (len(bad) - np.count_nonzero(bad)) < len(bad):
                    return None
                rows = np.arange(len(starts)) if rows is None else rows
                waiting.append((size, rows[bad]))
                rows, block = rows[~bad], block[~bad]
            found.append(_Alike(shape, rows, block))
        return cls(data, starts, found)

    def get(self, name: str) -> pa.StringArray:
        """Return one property of every record, null if missing."""
        wanted = name.encode()
        count = len(self._starts)
        if len(self._alike) == 1:
            ((shape, _, block),) = self._alike
            place = shape.values.get(wanted)
            return to_text(_slices(block, *place)) if place else pa.nulls(count, pa.string())
        starts = np.zeros(count, np.int64)
        ends = np.full(count, -1, np.int64)
        for shape, rows, _ in self._alike:
            if wanted in shape.values:
                starts[rows], ends[rows] = shape.values[wanted]
        rows = np.flatnonzero(ends >= 0)
        first = self._starts[rows]
        starts, ends = first + starts[rows], first + ends[rows]
        if len(rows) == count:
            return to_text(gather(self._data, starts, ends))
        return to_text(gather_at(self._data, starts, ends, rows, count))


def _compare(
    data: pa.Buffer, places: Int64s, size: int, shape: Shape
) -> tuple[Bytes, Bools | None]:
    """Return the properties at some places, (n, size), and which do not have the shape; None for none.

    What a byte differs from `fixed`, less one, is wrong below its limit: of names and separators all but 255,
    which is no difference; of values 0 and 1, which are separators.
    """
    count = len(places)
    if not size:
        return np.empty((count, 0), np.uint8), None
    run = min(_RUN, count)
    whole = -(-count // run) * run
    padded = np.full(whole, places[0])
    padded[:count] = places
    block = windows(data, padded, size).view(np.uint8)
    rest = block.reshape(-1, run * size) ^ np.tile(shape.fixed, run)
    rest -= 1
    wrong = rest < np.tile(shape.limits, run)
    block = block.reshape(whole, size)[:count]
    if not wrong.any():
        return block, None
    return block, np.logical_or.reduce(wrong.reshape(whole, size)[:count], axis=1)


def _slices(block: Bytes, start: int, end: int) -> pa.BinaryArray:
    """Return block[:, start:end] as an array of binaries."""
    count, size = block.shape
    values = np.ndarray((count,), f"V{end - start}", block, offset=start, strides=(size,))
    return of_one_size(values.copy())
