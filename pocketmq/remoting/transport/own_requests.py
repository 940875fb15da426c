"""OwnRequests: the requests that one end of a connection has sent, and who waits for their answers.

1. Each waiter gets its answer, or ConnectionLost.
2. At most `in_flight_max` wait at a time.
Owner: the Connection over which they are sent.
"""

import asyncio
from typing import Protocol

from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.errors import ConnectionLost, RemotingError, TooManyRequests
from pocketmq.remoting.transport.outbox import Outbox


class Waiter(Protocol):
    """Waits for an answer: a future, or an object that behaves like one."""

    def done(self) -> bool: ...

    def set_result(self, result: RemotingCommand, /) -> None: ...

    def set_exception(self, exception: RemotingError, /) -> None: ...


class OwnRequests:
    """Attributes: pending (the waiters by opaque), peer (`ip:port`, for errors), is_open."""

    def __init__(self, outbox: Outbox, in_flight_max: int) -> None:
        self.pending: dict[int, Waiter] = {}
        self.peer = ""
        self.is_open = False
        self._outbox = outbox
        self._in_flight_max = in_flight_max
        self._opaque = 0

    def open(self, peer: str) -> None:
        """Note that requests may be sent."""
        self.peer = peer
        self.is_open = True

    def begin(self, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        """Send a request. Raises, or gives: TooManyRequests, ConnectionLost."""
        command.opaque = opaque = self.take_opaque()
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self.pending[opaque] = future
        self._outbox.send(encode(command))
        return future

    def take_opaque(self) -> int:
        """Return the opaque for a request sent by `post`. Raises: TooManyRequests, ConnectionLost."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.peer} is closed; nothing was sent")
        if len(self.pending) >= self._in_flight_max:
            raise TooManyRequests(
                f"{len(self.pending)} requests to {self.peer} are waiting for an answer, which is the limit"
            )
        self._opaque = opaque = self._opaque + 1 & 0x7FFF_FFFF
        return opaque

    def post(self, opaque: int, frame: bytes, waiter: Waiter) -> None:
        """Send an encoded request; `waiter` gets its answer or ConnectionLost, in this loop's thread."""
        self.pending[opaque] = waiter
        self._outbox.post(frame, alone=len(self.pending) == 1)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises: ConnectionLost if already closed."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.peer} is closed; nothing was sent")
        self._opaque = command.opaque = self._opaque + 1 & 0x7FFF_FFFF
        command.flag |= 2
        self._outbox.send(encode(command))

    def fail(self) -> None:
        """Nothing is answered any more (invariant 1)."""
        waiting = [each for each in self.pending.values() if not each.done()]
        self.pending.clear()
        lost = f"the connection to {self.peer} ended before the answer came"
        for each in waiting:
            each.set_exception(ConnectionLost(lost))
