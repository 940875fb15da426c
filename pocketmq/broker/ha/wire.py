"""The protocol between a master and its slaves; no I/O. Source: HAConnection, HAClient, RocketMQ 4.9.7.

    slave -> master    int64 offset                             my log ends here
    master -> slave    int64 offset, int32 size, size bytes     the log from `offset` on; 0 bytes: still here

1. All big-endian. There is no greeting, no version and no name: every connection is a slave's. PocketMQ
   only: COMPARED, or a ticket (proof.py), both numbers below -1, may come before the first report.
2. The first report is the position to send from; later ones acknowledge. Of several received together the
   last one counts.
3. A slice may be cut anywhere, even within a record, but never crosses a file of the log. A slave accepts at
   most 4 MiB including the header; masters send 32 KiB.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.remoting.errors import PocketMQError

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")
HEAD_SIZE, REPORT_SIZE = _HEAD.size, _REPORT.size
SLICE_SIZE_MAX = (4 << 20) - HEAD_SIZE


# Before the first report: a slave that has compared the logs itself; below it are tickets (proof.py).
COMPARED = -2


class HaWireError(PocketMQError):
    """The received bytes are not what a master sends."""


def report(offset: int) -> bytes:
    """Encode a slave's report.

    >>> report(586).hex()
    '000000000000024a'
    """
    return _REPORT.pack(offset)


def position_of(data: bytes) -> int:
    """Decode one whole report.

    >>> position_of(report(-7))
    -7
    """
    return int(_REPORT.unpack(data)[0])


def head(offset: int, size: int) -> bytes:
    """Encode the header of a slice.

    >>> head(586, 0).hex()
    '000000000000024a00000000'
    """
    return _HEAD.pack(offset, size)


class ReportDecoder:
    """Decodes a slave's reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the complete reports so far, in order."""
        data = self._rest + data
        whole = len(data) // _REPORT.size * _REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]


class Slice(NamedTuple):
    """Bytes of the log from `offset` on; empty for a heartbeat."""

    offset: int
    data: memoryview


class SliceDecoder:
    """Decodes a master's slices."""

    def __init__(self) -> None:
        # The incomplete slice received so far, and the size from which decoding can continue.
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = HEAD_SIZE

    def feed(self, data: bytes) -> Iterator[Slice]:
        """Yield the complete slices so far. Raises: HaWireError."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        view = memoryview(data)
        at, needed = 0, HEAD_SIZE
        while len(view) - at >= HEAD_SIZE:
            offset, size = _HEAD.unpack_from(view, at)
            if not 0 <= size <= SLICE_SIZE_MAX or offset < 0:
                raise HaWireError(
                    f"a slice of {size} bytes at {offset}: the other side is not a RocketMQ master, or it "
                    "is in controller mode, which speaks another protocol on this port"
                )
            if len(view) - at < HEAD_SIZE + size:
                needed = HEAD_SIZE + size
                break
            at += HEAD_SIZE + size
            yield Slice(offset, view[at - size : at])
        self._parts = [data[at:]]
        self._size, self._needed = len(data) - at, needed
