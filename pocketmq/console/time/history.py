"""History: rates, lag and latency of the last 30 days, for the charts: an image of fixed size.

    offset  size        the image, in the byte order of this machine
         0    32        magic 8s, CRC-32 of the layout (another layout starts over), zeros
        32   264 each   names: CRC-32 of the rest, length H, the name in UTF-8 (255 at most)
         …  1376 each   rows of the first ring, then of the others: start_ms q, samples I, CRC-32 of all
                        the rest I, then a float of 4 bytes for each figure of each name, NaN where not known

1. A ring has a row for each of its steps: the row of a time is at `time // step % points` and contains its
   start, so that a clock that jumps, in either direction, leaves gaps but never a wrong order.
2. Steps grow with age (RINGS): a sample is merged into the current row of each ring. Rates are means over the
   row's step, lag and latency its maximum.
3. Every name has the same columns in all rows. A new name gets a column that is empty, or whose name was
   inactive for IDLE_MS; the column is cleared first.
4. What is read back is checked row by row and name by name; damaged parts become gaps.
Owner: Sampler. No I/O here: `write` is called with the changes.
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class SeriesKind(StrEnum):
    """The kind of thing that a series is about."""

    CLUSTER = "cluster"
    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"


class Ring(NamedTuple):
    """points steps, step_ms each."""

    step_ms: int
    points: int

    @property
    def span_ms(self) -> int:
        return self.step_ms * self.points


RINGS = (Ring(10_000, 360), Ring(120_000, 720), Ring(1_800_000, 1_440))
FIGURES: Mapping[SeriesKind, tuple[str, ...]] = {
    SeriesKind.CLUSTER: ("in", "out", "lag", "latency"),
    SeriesKind.BROKERS: ("in", "out", "latency"),
    SeriesKind.TOPICS: ("in", "out", "lag"),
    SeriesKind.GROUPS: ("lag", "out", "latency"),
}
NAMES_MAX: Mapping[SeriesKind, int] = {
    SeriesKind.CLUSTER: 1,
    SeriesKind.BROKERS: 16,
    SeriesKind.TOPICS: 48,
    SeriesKind.GROUPS: 48,
}
IDLE_MS = 3_600_000
_PEAKS = frozenset({"lag", "latency"})
_TIME_MAX = 1 << 62
_SAMPLES_MAX = (1 << 32) - 1

_HEAD = struct.Struct("=8sI20x")
_NAME = struct.Struct("=IH258s")
_NAME_SIZE_MAX = 255
_ROW = struct.Struct("=qII")
_COLUMNS = sum(NAMES_MAX[kind] * len(FIGURES[kind]) for kind in SeriesKind)
_ROW_SIZE = _ROW.size + 4 * _COLUMNS
_NOTHING = struct.pack("=f", math.nan) * _COLUMNS
_LAYOUT = zlib.crc32(repr((RINGS, FIGURES, NAMES_MAX, _ROW_SIZE)).encode())
_BEGIN = _HEAD.pack(b"PMQHIST1", _LAYOUT)
_NAMES_AT = _HEAD.size
_ROWS_AT = _NAMES_AT + _NAME.size * sum(NAMES_MAX.values())
IMAGE_SIZE = _ROWS_AT + _ROW_SIZE * sum(ring.points for ring in RINGS)
assert _ROWS_AT % 4 == _ROW_SIZE % 4 == 0

# Rows that are looked at to find out which names have the largest figures.
_LOOKS = 12
Write = Callable[[int, bytes], None]


class _Name:
    """A name with its columns. active_ms: when it last had a figure other than 0."""

    __slots__ = ("active_ms", "column", "name", "number")

    def __init__(self, number: int, column: int) -> None:
        self.number = number
        self.column = column
        self.name = ""
        self.active_ms = -IDLE_MS


class History:
    """Owner of the image."""

    def __init__(self, interval_ms: int, image: bytes = b"", write: Write | None = None) -> None:
        """interval_ms: between two samples. image: as it was written; damaged parts are left out.

        write: called with the offset and the bytes of each change; first with the whole image if `image` is
        absent or unreadable.
        """
        self.interval_ms = interval_ms
        self._write = write
        self._image = bytearray(IMAGE_SIZE)
        self._cells = memoryview(self._image).cast("f")
        self._names: dict[SeriesKind, list[_Name]] = {}
        self._by_name: dict[tuple[SeriesKind, str], _Name] = {}
        number = column = 0
        for kind in SeriesKind:
            self._names[kind] = []
            for _ in range(NAMES_MAX[kind]):
                self._names[kind].append(_Name(number, column))
                number, column = number + 1, column + len(FIGURES[kind])
        self._image[: len(_BEGIN)] = _BEGIN
        # The first ring is full in an hour: its memory is taken at once, so that a watch over the process
        # sees no growth. The rest is taken as the rings fill.
        self._image[_ROWS_AT : _ROWS_AT + RINGS[0].points * _ROW_SIZE] = bytes(
            RINGS[0].points * _ROW_SIZE
        )
        if len(image) == IMAGE_SIZE and image.startswith(_BEGIN):
            self._load(memoryview(image))
        else:
            self._changed(0, IMAGE_SIZE)

    # ------------------------------------------------------------ reading back (invariant 4)

    def _load(self, image: memoryview) -> None:
        for kind, places in self._names.items():
            for place in places:
                at = _NAMES_AT + place.number * _NAME.size
                crc, size, raw = _NAME.unpack_from(image, at)
                if not size or crc != zlib.crc32(image[at + 4 : at + _NAME.size]):
                    continue
                try:
                    name = raw[:size].decode()
                except UnicodeDecodeError:
                    continue
                if self._by_name.setdefault((kind, name), place) is place:
                    place.name = name
                    place.active_ms = 0
                    self._image[at : at + _NAME.size] = image[at : at + _NAME.size]
        for ring, number, at in _rows():
            start, samples, crc = _ROW.unpack_from(image, at)
            # A row that was never written costs no memory here.
            if samples and start >= 0 and start % ring.step_ms == 0:
                row = image[at : at + _ROW_SIZE]
                if start // ring.step_ms % ring.points == number and crc == _row_crc(row):
                    self._image[at : at + _ROW_SIZE] = row

    # ------------------------------------------------------------ a sample

    def add(
        self, at_ms: int, values: Mapping[SeriesKind, Mapping[str, Mapping[str, float]]]
    ) -> None:
        """Add one sample: kind -> name -> figure -> value. An impossible time is ignored."""
        if not 0 <= at_ms < _TIME_MAX:
            return
        found: list[tuple[int, float, bool]] = []
        for kind, table in values.items():
            for name, figures in table.items():
                place = self._place(kind, name, any(figures.values()), at_ms)
                if place is None:
                    continue
                for index, figure in enumerate(FIGURES[kind]):
                    value = figures.get(figure)
                    if value is not None and math.isfinite(value):
                        found.append((place.column + index, value, figure in _PEAKS))
        base = _ROWS_AT
        for ring in RINGS:
            number = at_ms // ring.step_ms % ring.points
            self._merge(base + number * _ROW_SIZE, at_ms - at_ms % ring.step_ms, found)
            base += ring.points * _ROW_SIZE

    def _merge(self, at: int, start: int, found: list[tuple[int, float, bool]]) -> None:
        """Merge a sample into the row at `at` (invariant 2)."""
        image, cells, first = self._image, self._cells, (at + _ROW.size) // 4
        have, samples, _ = _ROW.unpack_from(image, at)
        if have != start or not samples:
            samples = 0
            image[at + _ROW.size : at + _ROW_SIZE] = _NOTHING
        samples = min(samples + 1, _SAMPLES_MAX)
        for column, value, is_peak in found:
            old = cells[first + column]
            if math.isnan(old):
                new = value
            elif is_peak:
                new = max(old, value)
            else:
                new = old + (value - old) / samples
            cells[first + column] = new
        _ROW.pack_into(image, at, start, samples, 0)
        self._seal(at)

    def _seal(self, at: int) -> None:
        start, samples, _ = _ROW.unpack_from(self._image, at)
        crc = _row_crc(memoryview(self._image)[at : at + _ROW_SIZE])
        _ROW.pack_into(self._image, at, start, samples, crc)
        self._changed(at, _ROW_SIZE)

    def _place(self, kind: SeriesKind, name: str, is_active: bool, at_ms: int) -> _Name | None:
        """Return the columns of a name; None if none are free (invariant 3)."""
        place = self._by_name.get((kind, name))
        if place is None:
            raw = name.encode("utf-8", "replace")
            if not 0 < len(raw) <= _NAME_SIZE_MAX:
                return None
            place = self._free(kind, is_active, at_ms)
            if place is None:
                return None
            self._empty(place, len(FIGURES[kind]))
            self._by_name.pop((kind, place.name), None)
            self._by_name[kind, name] = place
            place.name = name
            place.active_ms = at_ms - IDLE_MS
            at = _NAMES_AT + place.number * _NAME.size
            _NAME.pack_into(self._image, at, 0, len(raw), raw)
            crc = zlib.crc32(memoryview(self._image)[at + 4 : at + _NAME.size])
            _NAME.pack_into(self._image, at, crc, len(raw), raw)
            self._changed(at, _NAME.size)
        # A time that was read back, or is in the future after the clock was set back, restarts now.
        if is_active or place.active_ms == 0 or place.active_ms > at_ms:
            place.active_ms = at_ms
        return place

    def _free(self, kind: SeriesKind, is_active: bool, at_ms: int) -> _Name | None:
        places = self._names[kind]
        free = next((each for each in places if not each.name), None)
        if free is None and is_active:
            idle = min(places, key=lambda each: each.active_ms)
            if idle.active_ms <= at_ms - IDLE_MS:
                free = idle
        return free

    def _empty(self, place: _Name, width: int) -> None:
        nothing = _NOTHING[: 4 * width]
        for _, _, at in _rows():
            first = at + _ROW.size + 4 * place.column
            if (
                _ROW.unpack_from(self._image, at)[1]
                and self._image[first : first + 4 * width] != nothing
            ):
                self._image[first : first + 4 * width] = nothing
                self._seal(at)

    def _changed(self, at: int, size: int) -> None:
        if self._write is not None:
            self._write(at, bytes(self._image[at : at + size]))

    # ------------------------------------------------------------ being asked

    def view(
        self,
        kind: SeriesKind,
        name: str | None,
        since_ms: int,
        until_ms: int,
        now_ms: int,
        count_max: int = 8,
    ) -> dict[str, Any]:
        """Return it as API.md describes; without a name the `count_max` with most of the first figure.

        The finest ring that reaches back to `since_ms` is used; it may lack one step, since a question for
        its whole span comes a little late.
        """
        reach_ms = now_ms - since_ms
        ring = next((each for each in RINGS if reach_ms <= each.span_ms + each.step_ms), RINGS[-1])
        oldest_ms = max(since_ms, now_ms - ring.span_ms) - ring.step_ms
        rows: list[tuple[int, int]] = []
        for one, _, at in _rows():
            if one is ring:
                start, samples, _ = _ROW.unpack_from(self._image, at)
                if samples and oldest_ms < start < until_ms:
                    rows.append((start, (at + _ROW.size) // 4))
        rows.sort()
        if name is None:
            # A few rows tell which are the largest; the newest is among them.
            told = rows[:: -max(1, len(rows) // _LOOKS)]

            def size(each: _Name) -> float:
                figures = (self._cells[at + each.column] for _, at in told)
                return sum(figure for figure in figures if math.isfinite(figure))

            chosen = sorted(
                (each for each in self._names[kind] if each.name),
                key=lambda each: (-size(each), -each.active_ms),
            )[:count_max]
        else:
            place = self._by_name.get((kind, name))
            chosen = [] if place is None else [place]
        return {
            "intervalMs": max(ring.step_ms, self.interval_ms),
            "times": [start for start, _ in rows],
            "series": [
                {
                    "name": each.name,
                    "values": {
                        figure: [self._value(at + each.column + index) for _, at in rows]
                        for index, figure in enumerate(FIGURES[kind])
                    },
                }
                for each in chosen
            ],
        }

    def _value(self, cell: int) -> float | None:
        value = self._cells[cell]
        return round(value, 3) if math.isfinite(value) else None


def _rows() -> Iterator[tuple[Ring, int, int]]:
    """Yield each row: its ring, its number there, its offset."""
    at = _ROWS_AT
    for ring in RINGS:
        for number in range(ring.points):
            yield ring, number, at
            at += _ROW_SIZE


def _row_crc(row: memoryview) -> int:
    """Return the CRC of everything but the CRC itself."""
    return zlib.crc32(row[_ROW.size :], zlib.crc32(row[: _ROW.size - 4]))
