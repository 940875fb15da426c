"""Extracts fields from many places of a buffer at once, with numpy and Arrow; no Python per message.

windows()  a fixed number of bytes at each place: an overlapping view of the buffer, indexed
gather()   byte ranges. Those of one length are windows. For any lengths, offsets [s0, e0, s1, e1, ...] over
           the raw buffer describe wanted ranges and the gaps between them as one Arrow array; taking every
           second element copies the wanted ones once. Needs less than 2 GiB from first to last byte.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pocketmq.bulk.columns.arrays import Int64s

SPAN_MAX = (1 << 31) - 1

_EVENS: dict[str, pa.Array] = {
    "even": pa.Array.from_buffers(pa.int32(), 0, [None, pa.py_buffer(b"")])
}


def windows(data: pa.Buffer, places: Int64s, width: int) -> npt.NDArray[Any]:
    """Return `width` bytes at each place, as a (n,) array of void; a copy.

    The caller has checked 0 <= place <= size - width.
    """
    if not len(places):
        return np.empty(0, f"V{width}")
    view: npt.NDArray[Any] = np.ndarray((data.size - width + 1,), f"V{width}", data, strides=(1,))
    return view[places]


def bytes_at(data: pa.Buffer, places: Int64s) -> npt.NDArray[np.uint8]:
    """Return one byte at each place."""
    return np.frombuffer(data, np.uint8)[places]


def uint16_at(data: pa.Buffer, places: Int64s) -> Int64s:
    """Return the big-endian unsigned 16 bits at each place."""
    view: npt.NDArray[Any] = np.ndarray((data.size - 1,), ">u2", data, strides=(1,))
    return view[places].astype(np.int64)


def even_indices(count: int) -> pa.Array:
    """Return 0, 2, 4 ... as an Arrow array; the longest one is kept and sliced."""
    kept = _EVENS["even"]
    if len(kept) < count:
        kept = _EVENS["even"] = pa.array(np.arange(0, 2 * max(count, 1 << 16), 2, dtype=np.int32))
    return kept.slice(0, count)


def interleaved(data: pa.Buffer, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Return the array of 2n ascending ranges: element 2i is data[starts[i]:ends[i]], the odd ones are gaps.

    The last one lies behind the last range. `take` makes room for as many elements of middle size, and moves
    what it has when they are larger, as bodies are: then the last one is so large that the room is enough.
    """
    count = len(starts)
    base = int(starts[0])
    span = int(ends[-1]) - base
    if span > SPAN_MAX:
        raise ValueError(
            f"{span} bytes from first to last range; at most {SPAN_MAX} can be gathered"
        )
    # The first range speaks for all: adding up short values would cost more than it spares.
    if 2 * (int(ends[0]) - base) * count > span:
        wanted = int(ends.sum()) - int(starts.sum())
        span = min(max(span, 2 * wanted), data.size - base, SPAN_MAX)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts - base
    offsets[1::2] = ends - base
    offsets[-1] = span
    return pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), data.slice(base, span)]
    )


def gather(data: pa.Buffer, starts: Int64s, ends: Int64s) -> pa.BinaryArray:
    """Return data[starts[i]:ends[i]] for each i, copied once."""
    if not len(starts):
        return pa.array([], pa.binary())
    width = int(ends[0] - starts[0])
    if 0 < width * len(starts) <= SPAN_MAX and (ends - starts == width).all():
        values = windows(data, starts, width).view(np.uint8)
        offsets = np.arange(0, len(values) + 1, width, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(starts), buffers)
    if (starts[1:] < starts[:-1]).any():
        return gather_at(data, starts, ends, np.arange(len(starts)), len(starts))
    return pc.take(interleaved(data, starts, ends), even_indices(len(starts)), boundscheck=False)


def gather_at(data: pa.Buffer, starts: Int64s, ends: Int64s, rows: Int64s, count: int) -> Any:
    """Return `count` values: range i goes to row rows[i]; rows without a range are null.

    Of two ranges for one row the one that lies behind the other counts.
    """
    if not len(starts):
        return pa.nulls(count, pa.binary())
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends, rows = starts[order], ends[order], rows[order]
    place = np.full(count, -1, np.int32)
    place[rows] = np.arange(0, 2 * len(rows), 2, dtype=np.int32)
    absent = place < 0
    indices = pa.array(place, mask=absent if absent.any() else None)
    return pc.take(interleaved(data, starts, ends), indices, boundscheck=False)


def offsets_and_data(array: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    """Return the int32 offsets (n + 1) and the value bytes of a binary or string array."""
    _, offsets, data = array.buffers()
    first = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return first, data if data is not None else pa.py_buffer(b"")


def to_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return the same bytes as strings; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()],
            pa.string(),
        )


def integers(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return a numpy column as Arrow, in native byte order."""
    return pa.array(values.astype(type_.to_pandas_dtype(), copy=False), type_)


def constant_text(value: str, count: int) -> pa.StringArray:
    """Return one string `count` times."""
    return pa.repeat(pa.scalar(value, pa.string()), count)
