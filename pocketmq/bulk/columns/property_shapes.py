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

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.gather import gather, gather_at, to_text, windows

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
    limits: see _differing().
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


class ShapedProperties:
    """Properties that begin at `starts` in some data, if all of them have one of a few shapes."""

    def __init__(self, data: pa.Buffer, starts: Int64s, alike: list[tuple[Shape, Int64s]]) -> None:
        """alike: shapes, and the records of each."""
        self._data = data
        self._starts = starts
        self._alike = alike

    @classmethod
    def of(cls, data: pa.Buffer, starts: Int64s, ends: Int64s) -> "ShapedProperties | None":
        """Compare all records; None if they have too many shapes, or any that only Java's rules divide."""
        sizes = ends - starts
        if int(sizes.sum()) > _SIZE_MAX:
            return None
        kinds = np.flatnonzero(np.bincount(sizes)).tolist()
        room = min(_SHAPES_MAX, max(1, len(starts) // _ROWS_EACH)) - len(kinds)
        if room < 0:
            return None
        waiting = [(size, np.flatnonzero(sizes == size)) for size in kinds]
        found: list[tuple[Shape, Int64s]] = []
        while waiting:
            size, rows = waiting.pop()
            places = starts[rows]
            first = int(places[0])
            shape = shape_of(bytes(memoryview(data)[first : first + size]))
            if shape is None:
                return None
            bad = _differing(data, places, size, shape)
            if bad is not None:
                room -= 1
                if room < 0 or _LEAST_SHARE * (len(bad) - np.count_nonzero(bad)) < len(bad):
                    return None
                waiting.append((size, rows[bad]))
                rows = rows[~bad]
            found.append((shape, rows))
        return cls(data, starts, found)

    def get(self, name: str) -> pa.StringArray:
        """Return one property of every record, null if missing."""
        wanted = name.encode()
        count = len(self._starts)
        starts, ends = self._starts.copy(), np.full(count, -1, np.int64)
        for shape, rows in self._alike:
            if wanted in shape.values:
                start, end = shape.values[wanted]
                ends[rows] = starts[rows] + end
                starts[rows] += start
        has = ends >= 0
        if has.all():
            return to_text(gather(self._data, starts, ends))
        return to_text(gather_at(self._data, starts[has], ends[has], np.flatnonzero(has), count))


def _differing(data: pa.Buffer, places: Int64s, size: int, shape: Shape) -> Bools | None:
    """Return which properties at some places do not have the shape; None for none.

    What a byte differs from `fixed`, less one, is wrong below its limit: of names and separators all but 255,
    which is no difference; of values 0 and 1, which are separators.
    """
    if not size:
        return None
    run = min(_RUN, len(places))
    # The last run is filled up.
    whole = np.resize(places, -(-len(places) // run) * run)
    rest = windows(data, whole, size).view(np.uint8).reshape(-1, run * size)
    rest ^= np.tile(shape.fixed, run)
    rest -= 1
    wrong = rest < np.tile(shape.limits, run)
    if not wrong.any():
        return None
    bad: Bools = np.logical_or.reduce(wrong.reshape(-1, size)[: len(places)], axis=1)
    return bad
