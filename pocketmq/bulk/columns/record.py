"""The fixed part of many records at once, and the places of their variable parts.

Record layout: remoting.record. With IPv4 hosts the part up to the body has one size and one strided view
reads it; if any record of a batch has an IPv6 host, the same fields are gathered from computed places.

Checks: every record must have a magic, its own position, the size that its ConsumeQueue entry says, and
lengths that add up. Records that fail are reported by place, never decoded.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Bools, Int64s
from pocketmq.bulk.columns.gather import bytes_at, uint16_at, windows
from pocketmq.model.record import (
    BORN_HOST_AT,
    BORN_V6,
    FIXED_V4,
    HEAD,
    HEAD_FIELDS,
    HOST_SIZE,
    HOST_SIZE_V6,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    STORE_MS_SIZE,
    STORE_V6,
    TAIL,
    TAIL_FIELDS,
    numpy_fields,
)

_HOSTS = (("born_host", f"V{HOST_SIZE}"), ("store_ms", ">i8"), ("store_host", f"V{HOST_SIZE}"))
_HEAD = np.dtype(numpy_fields(HEAD_FIELDS))
_TAIL = np.dtype(numpy_fields(TAIL_FIELDS))
_V4 = np.dtype([*numpy_fields(HEAD_FIELDS), *_HOSTS, *numpy_fields(TAIL_FIELDS)])
assert (_HEAD.itemsize, _TAIL.itemsize, _V4.itemsize) == (HEAD.size, TAIL.size, FIXED_V4.size)
# Most of the cost is the memory that is touched: what is wanted decides how far a record is read.
_TO_STORE_TIME = np.dtype([*numpy_fields(HEAD_FIELDS), *_HOSTS[:2]])
_LAYOUTS = (_HEAD, _TO_STORE_TIME, _V4)


class FixedPart:
    """Fields of records that start at `starts` in `data`; columns are read on demand.

    starts: each at least RECORD_SIZE_MIN bytes before the end of data.
    """

    def __init__(
        self, data: pa.Buffer, starts: Int64s, fields: Iterable[str] | None = None
    ) -> None:
        """fields: those that will be used; None means any. The head's are always included."""
        self.data = data
        self.starts = starts
        self._columns: dict[str, npt.NDArray[Any]] = {}
        wanted = set(_V4.names or ()) if fields is None else set(fields)
        layout = next(dt for dt in _LAYOUTS if wanted <= set(dt.names or ()) or dt is _V4)
        if data.size >= layout.itemsize:
            self._view: npt.NDArray[Any] = windows(data, starts, layout.itemsize).view(layout)
        else:
            self._view = np.empty(0, layout)
        flags = self._view["sys_flag"]
        # Host bits are looked at in big-endian place: 0x30 sits in the last byte.
        self.has_v6 = bool((flags & (BORN_V6 | STORE_V6)).any())
        self._after_born: Int64s | None = None
        if self.has_v6:
            self._place_v6()

    def __len__(self) -> int:
        return len(self.starts)

    def _place_v6(self) -> None:
        flags = self.column("sys_flag")
        born = np.where(flags & BORN_V6, HOST_SIZE_V6, HOST_SIZE)
        store = np.where(flags & STORE_V6, HOST_SIZE_V6, HOST_SIZE)
        self._after_born = self.starts + BORN_HOST_AT + born
        tail_at = self._after_born + STORE_MS_SIZE + store
        # A record cut off by the end of the data is found by its size later; here only stay inside.
        last = self.data.size
        tail = windows(self.data, np.minimum(tail_at, last - TAIL.size), TAIL.size).view(_TAIL)
        store_ms_at = np.minimum(self._after_born, last - STORE_MS_SIZE)
        store_ms = windows(self.data, store_ms_at, STORE_MS_SIZE).view(">i8")
        for name in _TAIL.names or ():
            self._columns[name] = tail[name].astype(tail[name].dtype.newbyteorder("="))
        self._columns["store_ms"] = store_ms.astype(np.int64)
        self._columns["body_start"] = tail_at + TAIL.size

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one field in native byte order; `body_start` is a place in data."""
        found = self._columns.get(name)
        if found is None:
            if name == "body_start":
                found = self.starts + FIXED_V4.size
            else:
                field = self._view[name]
                found = field.astype(field.dtype.newbyteorder("="))
            self._columns[name] = found
        return found

    def hosts(self, which: str) -> tuple[npt.NDArray[Any], Bools | None, npt.NDArray[Any] | None]:
        """born_host or store_host: (V8 column, mask of IPv6 rows, V20 values of those rows).

        The V8 values of IPv6 rows mean nothing.
        """
        if self._after_born is None:
            return self._view[which], None, None
        bit = BORN_V6 if which == "born_host" else STORE_V6
        places = (
            self.starts + BORN_HOST_AT if which == "born_host" else self._after_born + STORE_MS_SIZE
        )
        mask = (self.column("sys_flag") & bit) != 0
        return (
            windows(self.data, places, HOST_SIZE),
            mask,
            windows(self.data, places[mask], HOST_SIZE_V6),
        )

    def sound(self, sizes: npt.NDArray[Any] | None, positions: npt.NDArray[Any] | None) -> Bools:
        """Return the rows whose fixed part is a record's, of the expected size and place (any byte order)."""
        view = self._view
        size = self.column("size")
        good: Bools = (view["magic"] == MAGIC_V1) | (view["magic"] == MAGIC_V2)
        good &= (size >= RECORD_SIZE_MIN) & (size <= self.data.size - self.starts)
        if sizes is not None:
            good &= view["size"] == sizes
        if positions is not None:
            good &= view["position"] == positions
        return good


class VariableParts:
    """Places of body, topic and properties of sound records in the data; all are int64."""

    def __init__(self, fixed: FixedPart) -> None:
        data = fixed.data
        ends = fixed.starts + fixed.column("size")
        self.body_start: Int64s = fixed.column("body_start")
        body_end = self.body_start + fixed.column("body_size")
        version_2 = fixed._view["magic"] == MAGIC_V2
        prefix = np.where(version_2, 2, 1) if version_2.any() else 1
        good: Bools = (fixed.column("body_size") >= 0) & (body_end + prefix + 2 <= ends)
        # Unsound rows are looked at in a harmless place, so that no index leaves the data.
        self.body_end: Int64s = np.where(good, body_end, fixed.starts)
        topic_size = bytes_at(data, self.body_end).astype(np.int64)
        if not isinstance(prefix, int):
            topic_size = np.where(version_2, uint16_at(data, self.body_end), topic_size)
        self.topic_start: Int64s = self.body_end + prefix
        topic_end = self.topic_start + topic_size
        good &= topic_end + 2 <= ends
        self.topic_end: Int64s = np.where(good, topic_end, fixed.starts)
        self.properties_start: Int64s = self.topic_end + 2
        properties_size = uint16_at(data, self.topic_end)
        good &= self.properties_start + properties_size == ends
        self.properties_end: Int64s = np.where(good, ends, self.properties_start)
        self.good = good
