"""The bytes between a master and its slaves; no I/O. Source: HAConnection, HAClient, RocketMQ 4.9.7.

    slave -> master    int64 offset                             my log ends here
    master -> slave    int64 offset, int32 size, size bytes     the log from `offset` on; 0 bytes: still here

1. All big-endian. There is no greeting, no version and no name: whoever connects is the slave.
2. The first report asks for what is to be sent; each later one acknowledges. Of several that came together
   the last one counts.
3. A slice is cut anywhere, also within a record, and never crosses a file of the log. A slave takes at most
   4 MiB with its head; masters send 32 KiB.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.remoting.errors import PocketMQError

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")
HEAD_SIZE = _HEAD.size
SLICE_SIZE_MAX = (4 << 20) - HEAD_SIZE


class HaWireError(PocketMQError):
    """What came is not what a master sends."""


def report(offset: int) -> bytes:
    """What a slave sends.

    >>> report(586).hex()
    '000000000000024a'
    """
    return _REPORT.pack(offset)


def head(offset: int, size: int) -> bytes:
    """What stands before a slice.

    >>> head(586, 0).hex()
    '000000000000024a00000000'
    """
    return _HEAD.pack(offset, size)


class Reports:
    """Reads what a slave sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The reports that are whole now, in their order."""
        data = self._rest + data
        whole = len(data) // _REPORT.size * _REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]


class Slice(NamedTuple):
    """Bytes of the log from `offset` on; none: a sign of life."""

    offset: int
    data: bytes


class Slices:
    """Reads what a master sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Slice]:
        """The slices that are whole now. Raises: HaWireError."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= HEAD_SIZE:
            offset, size = _HEAD.unpack_from(buffer, at)
            if not 0 <= size <= SLICE_SIZE_MAX or offset < 0:
                raise HaWireError(
                    f"a slice of {size} bytes at {offset}: the other side is no RocketMQ master, or is "
                    "one in controller mode, which speaks another language on this port"
                )
            end = at + HEAD_SIZE + size
            if len(buffer) < end:
                break
            yield Slice(offset, bytes(buffer[at + HEAD_SIZE : end]))
            at = end
        del buffer[:at]
