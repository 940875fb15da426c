"""The write side of a connection: buffered output and pending requests.

1. Frames sent while a read is worked on leave in one write; others soon, with the rest of this turn's frames.
2. Each waiter gets its answer, or ConnectionLost.
3. A connection may lead nowhere although nothing closed it: a firewall or a balancer has forgotten it, and
   the bytes of both ends vanish. If nothing at all has come while a request waited for its whole time, it
   `is_silent`, and its owner is notified, once.
Owner: Connection, the other half (connection.py).
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.errors import ConnectionLost, TooManyRequests
from pocketmq.remoting.transport import coroutines
from pocketmq.remoting.transport.outbox import BUFFER_HIGH, PIECE_SIZE, Buffer, Outbox
from pocketmq.remoting.transport.peer import PeerAnswer
from pocketmq.remoting.transport.tls import TlsLayer
from pocketmq.remoting.transport.waiter import Waiter

# A shorter wait is no sign that a connection leads nowhere. Source: NettyRemotingClient, RocketMQ 5.3.
_SILENT_MS_MIN = 100
# Times of reads are whole ms.
_ROUNDED_MS = 2


class Sending(asyncio.Protocol):
    """Sends frames, and requests with their waiters; asked as a Peer, too."""

    protocol = "remoting"

    def __init__(
        self,
        *,
        monotonic_ms: Callable[[], int],
        count_unread: Callable[[int], None],
        in_flight_max: int,
        watched: bool,
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._in_flight_max = in_flight_max
        # Whether silence is noted (invariant 3), and has been.
        self._watched = watched
        self.is_silent = False
        self._pending: dict[int, Waiter] = {}
        self._opaque = 0
        self._outbox = Outbox(count_unread)
        # Corked: a read is worked on, whose end flushes.
        self._corked = self._flush_scheduled = self._ending = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.peer = self.local = ""
        self.peer_host = b"\0" * 8
        self.closed = False
        self.opened_ms = self.last_read_ms = self.last_write_ms = 0

    def send(self, reply: RemotingCommand | bytes | Sequence[Buffer]) -> None:
        """Write one frame, together with the other replies of a read; dropped if the connection is closed."""
        if self.closed or self._ending:
            return
        if isinstance(reply, RemotingCommand):
            reply = encode(reply)
        outbox = self._outbox
        if isinstance(reply, bytes):
            outbox.add(reply)
        else:
            outbox.add_buffers(reply)
        if outbox.size > BUFFER_HIGH and not self._corked:
            self._flush()
        elif not (self._corked or self._flush_scheduled):
            self._flush_soon()

    def _flush_soon(self) -> None:
        self._flush_scheduled = True
        assert self._loop is not None
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._outbox.flush():
            self.last_write_ms = self.last_read_ms if self._corked else self._monotonic_ms()

    def begin(self, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        """Send a request; the caller bounds the wait. Raises, or gives: TooManyRequests, ConnectionLost."""
        command.opaque = opaque = self.take_opaque()
        assert self._loop is not None
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._pending[opaque] = future
        self.send(command)
        return future

    def take_opaque(self) -> int:
        """Return the opaque for a request sent by `post`. Raises: TooManyRequests, ConnectionLost."""
        if self.closed or self._loop is None:
            raise ConnectionLost(f"the connection to {self.peer} is closed; nothing was sent")
        if len(self._pending) >= self._in_flight_max:
            raise TooManyRequests(
                f"{len(self._pending)} requests to {self.peer} are waiting for an answer, which is the limit"
            )
        self._opaque = opaque = self._opaque + 1 & 0x7FFF_FFFF
        return opaque

    def post(self, opaque: int, frame: bytes, waiter: Waiter) -> None:
        """Send an encoded request; `waiter` gets its answer or ConnectionLost, in this loop's thread.

        A single request is written at once; many in one turn of the loop in several pieces, so the peer can
        begin.
        """
        pending, outbox = self._pending, self._outbox
        pending[opaque] = waiter
        outbox.add(frame)
        if self._corked:
            return
        if outbox.size > PIECE_SIZE or (len(pending) == 1 and not self._flush_scheduled):
            self._flush()
        elif not self._flush_scheduled:
            self._flush_soon()

    def forget(self, opaque: int) -> None:
        """Drop the waiter of that answer."""
        self._pending.pop(opaque, None)

    def unanswered(self, opaque: int, waited_ms: float) -> None:
        """Drop the waiter of an answer that has not come in its time (invariant 3)."""
        self._pending.pop(opaque, None)
        self.in_vain(waited_ms)

    def in_vain(self, waited_ms: float) -> None:
        """Note that a request has waited so long for nothing (invariant 3)."""
        if not self._watched or self.is_silent or self.closed or waited_ms < _SILENT_MS_MIN:
            return
        if self._monotonic_ms() - self.last_read_ms >= waited_ms - _ROUNDED_MS:
            self.is_silent = True
            self.silence()

    def silence(self) -> None:
        """Notify the owner (invariant 3)."""
        raise NotImplementedError

    @property
    def is_asking(self) -> bool:
        """Return True if a request waits for its answer."""
        return bool(self._pending)

    def invoke(
        self, command: RemotingCommand, timeout_ms: int
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Send a request and wait for its answer.

        Raises: RequestTimeout, ConnectionLost, TooManyRequests.
        """
        return coroutines.invoke(self, command, timeout_ms)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises: ConnectionLost if already closed."""
        if self.closed:
            raise ConnectionLost(f"the connection to {self.peer} is closed; nothing was sent")
        self._opaque = command.opaque = self._opaque + 1 & 0x7FFF_FFFF
        command.flag |= 2
        self.send(command)

    @property
    def address(self) -> str:
        """Return `ip:port` of the other end."""
        return self.peer

    @property
    def host(self) -> bytes:
        """Return the same in the form of records."""
        return self.peer_host

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Like `oneway`, from a code and fields."""
        self.oneway(RemotingCommand(code, dict(fields), body))

    def ask(
        self, code: int, fields: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> Coroutine[Any, Any, PeerAnswer]:
        """Like `invoke`, from a code and fields."""
        return coroutines.ask(self, code, fields, body, timeout_ms)

    def close(self) -> None:
        """Close once everything written has left."""
        if not self._corked:
            self._flush()
        self._ending = True
        self._outbox.end()

    def encrypt_by(self, layer: TlsLayer) -> None:
        """Let all that is written go through this layer."""
        self._outbox.encrypt_by(layer)

    def _fail_pending(self) -> None:
        """The connection has ended: nothing is written or answered any more."""
        self._outbox.clear()
        pending, self._pending = self._pending, {}
        lost = f"the connection to {self.peer} ended before the answer came"
        for future in (each for each in pending.values() if not each.done()):
            future.set_exception(ConnectionLost(lost))
