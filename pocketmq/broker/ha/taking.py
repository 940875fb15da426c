"""Taking: the connection over which a slave receives its master's log, in either protocol.

1. Each read is acknowledged at once; the records are appended in bounded steps between two reads.
2. What has come and was not appended is bounded: beyond it, nothing is read, and the master waits.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from pocketmq.broker.ha.flow import Flow
from pocketmq.broker.ha.wire import HaWireError, Slice, SliceDecoder, report
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError
from pocketmq.store.following import Following

CONNECT_S = 3.0
_PORT_MAX = 65_535
_READ_SIZE = 1 << 20
_BUFFER_SIZE = 4 << 20
_BEHIND_MAX = 8 << 20


class CannotFollow(PocketMQError):
    """Why a slave does not follow, in one sentence; it takes an operator to change that."""


@dataclass(slots=True)
class FollowState:
    """The state of following, for status pages. Times are monotonic.

    connected: the two logs have been compared, and this one follows. trouble: why it does not.
    """

    master: str = ""
    connected: bool = False
    trouble: str = "it has just begun"
    heard_ms: int = 0
    received: Flow = field(default_factory=Flow)
    master_end: int = 0
    cuts: list[str] = field(default_factory=list)


class Taking(asyncio.Protocol):
    """The protocol of the followed connection; ended: done with the reason why the connection ended."""

    def __init__(self, following: Following, state: FollowState, clock: Clock) -> None:
        self.following = following
        self._state = state
        self._monotonic_ms = clock.monotonic_ms
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._has_begun = False
        self._is_stepping = False
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it under uvloop.
        self._transport = cast("asyncio.Transport", transport)
        # Reports go to the kernel at once: the master waits for them.
        self._transport.set_write_buffer_limits(high=0)

    def begin(self) -> None:
        """Report where this log ends: the master sends from there, and counts it as had."""
        self._has_begun = True
        self.report()

    def report(self) -> None:
        """Acknowledge the end of this log."""
        assert self._transport is not None
        assert self._has_begun
        if not self._transport.is_closing():
            self._transport.write(self.report_of(self.following.received))

    def abort(self) -> None:
        """End the connection, whatever it has ended with: that was reported, or no longer matters."""
        self.ended.cancel() or self.ended.exception()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        state = self._state
        state.heard_ms = self._monotonic_ms()
        try:
            self.take(data)
        except (OSError, PocketMQError) as error:
            self.end(error)
            return
        if not self._has_begun:
            return
        state.master_end = max(state.master_end, self.following.received)
        self.report()
        if not self._is_stepping:
            self._is_stepping = True
            self._loop.call_soon(self._step)

    def take(self, data: bytes) -> None:
        """Decode the next bytes of the connection, and receive those of the log."""
        raise NotImplementedError

    def report_of(self, position: int) -> bytes:
        """Encode the report of the end of this log."""
        raise NotImplementedError

    def receive(self, offset: int, piece: bytes | memoryview) -> None:
        """Receive bytes of the log. Raises: HaWireError if others come next; OSError, StoreError."""
        if offset != self.following.received:
            raise HaWireError(
                f"the master sends {offset}, but {self.following.received} comes next"
            )
        self.following.receive(piece)
        self._state.received.add(len(piece), self._state.heard_ms)

    def _step(self) -> None:
        """Append some records; data from the master is read between two steps."""
        self._is_stepping = False
        if self.ended.done():
            return
        assert self._transport is not None
        try:
            self._is_stepping = self.following.step()
        except (OSError, PocketMQError) as error:
            self.end(error)
            return
        if self._is_stepping:
            self._loop.call_soon(self._step)
        may_read = self.following.behind <= _BEHIND_MAX
        if may_read != self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading() if may_read else self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error or EOFError("the master closed the connection"))

    def end(self, error: Exception) -> None:
        """Note why the connection ends; the first reason counts."""
        if not self.ended.done():
            self.ended.set_exception(error)


class SliceTaking(Taking):
    """RocketMQ 4.9's protocol: slices one way, positions the other (wire.py)."""

    def __init__(self, following: Following, state: FollowState, clock: Clock) -> None:
        super().__init__(following, state, clock)
        self._slices = SliceDecoder()

    def take(self, data: bytes) -> None:
        for offset, piece in self._slices.feed(data):
            self.receive(offset, piece)

    def report_of(self, position: int) -> bytes:
        return report(position)


async def fetched_slices(
    address: str, position: int, size: int, greeting: Iterable[int] = ()
) -> bytes:
    """Return bytes of a master's log, over a separate connection; greeting: what comes before the report.

    Raises: OSError, EOFError, HaWireError.
    """
    # Byte 0 of a log is always 0, and to ask for it would bring the last file.
    known = b"" if position else b"\0"
    asked = b"".join(map(report, (*greeting, position + len(known))))
    return await fetched(address, asked, SliceDecoder().feed, position, size, known)


async def fetched(
    address: str,
    asked: bytes,
    decode: Callable[[bytes], Iterable[Slice]],
    position: int,
    size: int,
    known: bytes = b"",
) -> bytes:
    """Return bytes of a master's log, over a separate connection on which `asked` is sent first.

    decode: gives the pieces in what has come; known: bytes at the beginning that are not asked for.
    Raises: OSError, EOFError, HaWireError.
    """
    found = bytearray(known)
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(*host_and_port(address), limit=_BUFFER_SIZE)
        try:
            writer.write(asked)
            while len(found) < size:
                data = await reader.read(_READ_SIZE)
                if not data:
                    raise EOFError("the master closed the connection")
                for offset, piece in decode(data):
                    if offset != position + len(found):
                        raise HaWireError(
                            f"asked for {position + len(found)}, but was sent {offset}"
                        )
                    found += piece
        finally:
            writer.transport.abort()
    return bytes(found[:size])


def host_and_port(address: str) -> tuple[str, int]:
    """Raises: CannotFollow for an invalid address: any program may answer under the master's name."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > _PORT_MAX:
        raise CannotFollow(f"{address[:100]!r}, the master's port for slaves, is not host:port")
    return host.strip("[]"), int(port)
