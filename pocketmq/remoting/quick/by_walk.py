"""Cuts the fields of a ROCKETMQ header by the shape of the previous one: twice as fast as walking over them.

    int16 n + key, int32 n + value, and so on to the end of the header

1. A client repeatedly sends the same fields with values of the same lengths. One unpack cuts such a header
   into heads (key size, key, value size) and values.
2. A shape is tried on all fields of its size; a different header of that size is detected by its heads, and
   walked over.
3. If shapes change all the time, learning is rare, so that it costs nothing.
"""

import struct

from pocketmq.remoting.errors import FrameError

FIELDS_MAX = 4_096
"""Fields of a header. Ours: more would hold up the event loop."""
_SHAPES_MAX = 512
_FIELDS_MAX = 32
_EAGER_MISSES = 8
_LEARN_EVERY = 64


class _Shape:
    __slots__ = ("heads", "keys", "misses", "unpack")

    def __init__(self) -> None:
        self.misses = 0
        self.keys: list[str] = []
        # Until something is learnt: cuts nothing, fits nothing.
        self.heads: tuple[bytes, ...] = (b"",)
        self.unpack = struct.Struct("").unpack_from


# By size of all fields together; emptied when there are too many to be a client's habit.
_shapes: dict[int, _Shape] = {}


def read_fields(header: bytes, at: int) -> dict[str, str]:
    """Read the fields from `at` to the end of the header.

    Raises: FrameError; IndexError, UnicodeDecodeError if lengths or text are broken.
    """
    size = len(header) - at
    shape = _shapes.get(size)
    if shape is None:
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        shape = _shapes[size] = _Shape()
    parts = shape.unpack(header, at)
    if parts[::2] == shape.heads:
        return dict(zip(shape.keys, map(bytes.decode, parts[1::2]), strict=True))
    return _walk(header, at, shape)


def _walk(header: bytes, start: int, shape: _Shape) -> dict[str, str]:
    size = len(header)
    ext: dict[str, str] = {}
    keys: list[str] = []
    sizes: list[str] = []
    at = start
    while at < size:
        key_end = at + 2 + (header[at] << 8 | header[at + 1])
        value_at = key_end + 4
        value_end = value_at + int.from_bytes(header[key_end:value_at], "big")
        if value_end > size:
            raise FrameError("a header field extends past the end of the header")
        key = header[at + 2 : key_end].decode("utf-8")
        ext[key] = header[value_at:value_end].decode("utf-8")
        keys.append(key)
        if len(keys) > FIELDS_MAX:
            raise FrameError(f"a header with more than {FIELDS_MAX} fields")
        sizes.append(f"{value_at - at}s{value_end - value_at}s")
        at = value_end
    misses = shape.misses
    shape.misses = misses + 1
    if (misses < _EAGER_MISSES or not misses % _LEARN_EVERY) and len(keys) <= _FIELDS_MAX:
        shape.unpack = struct.Struct("".join(sizes)).unpack_from
        shape.heads = shape.unpack(header, start)[::2]
        shape.keys = keys
    return ext
