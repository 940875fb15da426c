"""Frames of one size whose headers are cut by place (by_pattern.py), many at once: their values as columns.

    frames one behind the other = rows of a table; a field = the same bytes of each row

1. What is cut is what `Pattern.answer` would find in each frame: the text between the values is the same,
   and values are printable ASCII that needs no escape.
Imports numpy: callers check for it first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from pocketmq.remoting.quick.by_pattern import OPAQUE_MAX
from pocketmq.remoting.quick.layout import SAFE, Layout, Place
from pocketmq.remoting.rows import row_fields

_OPAQUE_MAX = b"%d" % OPAQUE_MAX
_DIGITS_MAX = 18
# A number of so many digits, each with 48 too much.
_POWERS = [
    numpy.array([10**place for place in reversed(range(width))], numpy.int64)
    for width in range(_DIGITS_MAX + 1)
]


class Cut(NamedTuple):
    """Values of frames: by field, an array with a row for each frame; opaques: as they are written."""

    rows: NDArray[Any]
    values: Sequence[bytes]
    opaques: NDArray[Any]


class Columns:
    """How to cut frames of one size.

    is_text: whether opaques are decimal digits, or four bytes.
    """

    def __init__(self, layout: Layout, size: int) -> None:
        header, places = layout.header, layout.places
        self.is_text = layout.is_text
        # The mark is the same, too.
        end = 4 + len(header)
        mask = bytearray(b"\xff" * end)
        fields: dict[str, tuple[int, str]] = {"body": (end, f"V{size - end}")}
        self._places: list[Place] = []
        for number, (start, stop) in enumerate(places):
            mask[4 + start : 4 + stop] = bytes(stop - start)
            fields[str(number)] = 4 + start, f"V{stop - start}"
            self._places.append((start, stop))
        self._names = [str(number) for number in range(len(places) - 1)]
        self._opaque = str(len(places) - 1)
        self.opaque_width = places[-1][1] - places[-1][0]
        self._size, self._end = size, end
        self._type = numpy.dtype(row_fields(size, fields))
        self._mask = numpy.frombuffer(bytes(mask), numpy.uint8)
        whole = numpy.frombuffer(layout.mark + header, numpy.uint8)
        self._same = whole & self._mask

    def cut(self, frames: Sequence[bytes]) -> Cut | None:
        """Return the values of frames of this size; None if a header has another layout."""
        joined = b"".join(frames)
        table = numpy.frombuffer(joined, numpy.uint8).reshape(len(frames), self._size)
        if ((table[:, : self._end] & self._mask) != self._same).any():
            return None
        rows: Any = numpy.frombuffer(joined, self._type)
        values: list[bytes] = []
        for name in self._names:
            value: bytes = rows[name].tobytes()
            if value.translate(None, SAFE):
                return None
            values.append(value)
        opaques = rows[self._opaque]
        if self.is_text:
            text: bytes = opaques.tobytes()
            width = self.opaque_width
            if not text.isdigit() or 48 in text[::width]:
                return None
            if width > len(_OPAQUE_MAX) or (
                width == len(_OPAQUE_MAX) and (opaques.view(f"S{width}") > _OPAQUE_MAX).any()
            ):
                return None
        return Cut(rows, values, opaques)


def numbers(text: bytes, count: int) -> NDArray[Any] | None:
    """Parse `count` joined numbers with the same number of digits each; None if they are not numbers."""
    width = len(text) // count
    if not text.isdigit() or width > _DIGITS_MAX:
        return None
    digits = numpy.frombuffer(text, numpy.uint8).reshape(count, width) - 48
    found: NDArray[Any] = digits @ _POWERS[width]
    return found
