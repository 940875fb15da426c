"""The protocol between a master and its slaves under a controller; no I/O. Source: AutoSwitchHAClient and
AutoSwitchHAConnection, RocketMQ 5.5.0; recorded: tests/broker/data/controller.

    slave -> master    1, int16 from last file, int16 learner, int64 broker id
    master -> slave    1, int32 size, int64 log end, int32 last epoch, then entries: int32 epoch, int64 start
    slave -> master    2, int64 end of its log
    master -> slave    2, int32 size, int64 offset, int32 epoch, int64 epoch start, int64 confirmed, bytes

1. All big-endian; the first int32 is the state, 1 handshake or 2 transfer, and decides the size.
2. The bytes of a slice belong to one epoch and to one file of the log; they are cut anywhere. Size 0 is a
   heartbeat, with the offset that comes next; -1: the master has no log yet.
3. A slave's first report is what to send from; all reports acknowledge.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pocketmq.broker.ha.wire import HaWireError

_STATE = struct.Struct(">i")
_BEGIN = struct.Struct(">ii")
_HANDSHAKE, _TRANSFER = 1, 2
_HELLO = struct.Struct(">ihhq")
_WELCOME = struct.Struct(">ii q i")
_ENTRY = struct.Struct(">iq")
_REPORT = struct.Struct(">iq")
_HEAD = struct.Struct(">ii q i qq")
HEAD_SIZE = _HEAD.size
FRAME_SIZE_MAX = 4 << 20
ENTRIES_MAX = 1_000


class Epoch(NamedTuple):
    """An epoch, and where its bytes begin in the log."""

    number: int
    start: int


class Hello(NamedTuple):
    """A slave's handshake. learner: it never counts as in sync."""

    broker_id: int
    learner: bool = False
    from_last_file: bool = False


class EndReported(NamedTuple):
    """A slave's report: where its log ends."""

    end: int


class Welcome(NamedTuple):
    """A master's answer to the handshake."""

    end: int
    epochs: tuple[Epoch, ...]


class LogPiece(NamedTuple):
    """Bytes of the log from `offset` on; empty for a heartbeat."""

    offset: int
    epoch: Epoch
    confirmed: int
    data: memoryview


def hello(broker_id: int, *, learner: bool = False) -> bytes:
    """Encode a slave's handshake.

    >>> hello(2).hex()
    '00000001000000000000000000000002'
    """
    return _HELLO.pack(_HANDSHAKE, 0, learner, broker_id)


def report(end: int) -> bytes:
    """Encode a slave's report.

    >>> report(460).hex()
    '0000000200000000000001cc'
    """
    return _REPORT.pack(_TRANSFER, end)


def welcome(end: int, epochs: Sequence[Epoch]) -> bytes:
    """Encode a master's answer to the handshake.

    >>> welcome(0, [Epoch(1, 0)]).hex()
    '000000010000000c000000000000000000000001000000010000000000000000'
    """
    epochs = epochs[-ENTRIES_MAX:]
    last = epochs[-1].number if epochs else -1
    body = b"".join(_ENTRY.pack(*each) for each in epochs)
    return _WELCOME.pack(_HANDSHAKE, len(body), end, last) + body


def head(offset: int, size: int, epoch: Epoch, confirmed: int) -> bytes:
    """Encode the header of a slice.

    >>> head(-1, 0, Epoch(1, 0), 0).hex()
    '0000000200000000ffffffffffffffff0000000100000000000000000000000000000000'
    """
    return _HEAD.pack(_TRANSFER, size, offset, epoch.number, epoch.start, confirmed)


class FromSlave:
    """Decodes what a slave sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Hello | EndReported]:
        """Yield the complete frames so far. Raises: HaWireError."""
        data = self._rest + data
        at = 0
        self._rest = b""
        while len(data) - at >= _STATE.size:
            state = _STATE.unpack_from(data, at)[0]
            if state not in (_HANDSHAKE, _TRANSFER):
                raise HaWireError(
                    f"state {state}: the other side is no slave of a broker in controller mode"
                )
            size = _HELLO.size if state == _HANDSHAKE else _REPORT.size
            if len(data) - at < size:
                break
            if state == _HANDSHAKE:
                _, from_last, learner, broker_id = _HELLO.unpack_from(data, at)
                yield Hello(broker_id, bool(learner), bool(from_last))
            else:
                yield EndReported(_REPORT.unpack_from(data, at)[1])
            at += size
        self._rest = data[at:]


class FromMaster:
    """Decodes what a master sends."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = _STATE.size

    def feed(self, data: bytes) -> Iterator[Welcome | LogPiece]:
        """Yield the complete frames so far. Raises: HaWireError."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        if len(self._parts) > 1:
            data = b"".join(self._parts)
        view = memoryview(data)
        at = 0
        while True:
            self._needed = _frame_size(view[at:])
            if len(view) - at < self._needed:
                break
            yield _frame(view[at : at + self._needed])
            at += self._needed
        self._parts = [data[at:]]
        self._size = len(data) - at


def _frame_size(view: memoryview) -> int:
    """Return the size of the frame that begins there, as far as it is known. Raises: HaWireError."""
    if len(view) < 2 * _STATE.size:
        return 2 * _STATE.size
    state, size = _BEGIN.unpack_from(view)
    if state not in (_HANDSHAKE, _TRANSFER) or not 0 <= size <= FRAME_SIZE_MAX - HEAD_SIZE:
        raise HaWireError(
            f"state {state} with {size} bytes: the other side is no master in controller mode"
        )
    if state == _TRANSFER:
        return HEAD_SIZE + int(size)
    if size % _ENTRY.size or size > ENTRIES_MAX * _ENTRY.size:
        raise HaWireError(f"{size} bytes are no list of epochs")
    return _WELCOME.size + int(size)


def _frame(view: memoryview) -> Welcome | LogPiece:
    if _STATE.unpack_from(view)[0] == _HANDSHAKE:
        _, _, end, _ = _WELCOME.unpack_from(view)
        entries = tuple(Epoch(*each) for each in _ENTRY.iter_unpack(view[_WELCOME.size :]))
        return Welcome(end, entries)
    _, _, offset, number, start, confirmed = _HEAD.unpack_from(view)
    return LogPiece(offset, Epoch(number, start), confirmed, view[HEAD_SIZE:])
