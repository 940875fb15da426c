"""One TCP connection: requests and answers both ways, in any order.

    bytes -> detector -> frames -> dispatch -> handlers      dispatch.py: in turns
    outbox -> bytes                                            outbox.py
    requests of this end, and their waiters                    own_requests.py
    whether the peer is read from                              read_gate.py

1. A client reads on while its peer does not read: its callers bound what it sends, and two ends must not wait
   for each other.
2. A connection may lead nowhere although nothing closed it: a firewall or a balancer has forgotten it, and
   the bytes of both ends vanish. If nothing at all has come while a request waited for its whole time, it
   `is_silent`, and its owner is notified, once.
Owner: created and closed by RemotingServer or RemotingClient; only the event loop's thread touches it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import REQUEST_HEADER_SIZE_MAX, RemotingCommand, encode
from pocketmq.remoting.errors import ProtocolError, UnknownEncoding
from pocketmq.remoting.flags import FrameFlag
from pocketmq.remoting.frames import FRAME_SIZE_MAX, FrameDecoder
from pocketmq.remoting.hosts import socket_name
from pocketmq.remoting.transport import coroutines
from pocketmq.remoting.transport.detect import ProtocolDetector
from pocketmq.remoting.transport.dispatch import Dispatch, Later, Reply, Serving, Spawn, Steps
from pocketmq.remoting.transport.limits import SharedLimits
from pocketmq.remoting.transport.outbox import Buffer, Outbox
from pocketmq.remoting.transport.own_requests import OwnRequests, Waiter
from pocketmq.remoting.transport.peer import PeerAnswer
from pocketmq.remoting.transport.read_gate import ReadGate
from pocketmq.remoting.transport.tls import TlsLayer

log = logging.getLogger(__name__)

Handler = Callable[[RemotingCommand, "Connection"], "Reply | Later | Steps"]

# A shorter wait is no sign that a connection leads nowhere. Source: NettyRemotingClient, RocketMQ 5.3.
_SILENT_MS_MIN = 100
# Times of reads are whole ms.
_ROUNDED_MS = 2


class Connection(asyncio.Protocol):
    """A connection of either end; asked as a Peer, too.

    Attributes: peer (`ip:port` of the other end), peer_host (its packed address, 8 or 20 bytes), last_read_ms
    (monotonic), closed, is_silent, tags (what the broker notes about its client).
    """

    protocol = "remoting"

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        spawn: Spawn,
        monotonic_ms: Callable[[], int],
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        default_handler: Handler | None = None,
        detector: ProtocolDetector | None = None,
        on_silent: Callable[["Connection"], None] | None = None,
        shared_limits: SharedLimits | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        in_flight_max: int = 65_536,
    ) -> None:
        """spawn: runs a coroutine as a child of the owner. on_close: calls `release`, now or later. detector:
        of a server; None takes all bytes for frames. on_silent: of a client (1, 2)."""
        self._monotonic_ms = monotonic_ms
        self._on_open = on_open
        self._on_close = on_close
        self._on_silent = on_silent
        self._detector = detector
        self._shared_limits = shared_limits
        self._decoder = FrameDecoder(frame_size_max)
        self._outbox = outbox = Outbox(self._count_unread, monotonic_ms)
        self._read_gate = read_gate = ReadGate(outbox, shared_limits)
        self._requests = requests = OwnRequests(outbox, in_flight_max)
        serving = Serving(
            handlers,
            default_handler or RemotingCommand.not_supported,
            spawn,
            monotonic_ms,
            REQUEST_HEADER_SIZE_MAX if on_silent is None else frame_size_max,
        )
        self._dispatch = Dispatch(serving, requests.pending, outbox, read_gate)
        self._transport: asyncio.Transport | None = None
        self.peer = self.local = ""
        self.peer_host = b"\0" * 8
        self.closed = self.is_silent = False
        self.last_read_ms = 0
        self.tags: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Connection {self.peer}{' closed' if self.closed else ''}>"

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = made = cast(asyncio.Transport, transport)
        self._outbox.open(made)
        self._read_gate.open(made)
        self.peer, self.peer_host = socket_name(transport.get_extra_info("peername"))
        self.local, _ = socket_name(transport.get_extra_info("sockname"))
        self._requests.open(self.peer)
        self.last_read_ms = self._monotonic_ms()
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_read_ms = now_ms = self._monotonic_ms()
        detector = self._detector
        if detector is not None:
            data = detector.take(self, self._transport, data)
            if detector.open:
                self._detector = None
            if not data:
                return
        decoder = self._decoder
        try:
            frames = decoder.feed(data)
        except ProtocolError as error:
            self.refuse(error)
            return
        self._dispatch.work(self, frames, now_ms)
        if decoder.buffer or self._read_gate.partial_since_ms:
            self._read_gate.half_frame(self, decoder.pending)

    def eof_received(self) -> bool:
        """Return True if its server closes it, in one of its next turns: many peers may end at once."""
        if self._shared_limits is None or self._on_close is None:
            return False
        self._outbox.is_over = True
        self._on_close(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._requests.is_open = False
        self._outbox.is_over = True
        (self._on_close or Connection.release)(self)

    def release(self) -> None:
        """Handle what a closed connection has read, and fail what it asked."""
        self._dispatch.finish(self)
        self._outbox.clear()
        self._requests.fail()

    def pause_writing(self) -> None:
        if self._on_silent is not None:
            return
        self._outbox.block()
        self._read_gate.update()

    def resume_writing(self) -> None:
        self._outbox.unblock()
        if not self._outbox.is_blocked:
            self._dispatch.read_again(self)

    # ------------------------------------------------------------ requests of this end

    def begin(self, command: RemotingCommand) -> "asyncio.Future[RemotingCommand]":
        """Send a request; the caller bounds the wait. Raises, or gives: TooManyRequests, ConnectionLost."""
        return self._requests.begin(command)

    def take_opaque(self) -> int:
        """Return the opaque for a request sent by `post`. Raises: TooManyRequests, ConnectionLost."""
        return self._requests.take_opaque()

    def post(self, opaque: int, frame: bytes, waiter: Waiter) -> None:
        """Send an encoded request; `waiter` gets its answer or ConnectionLost, in this loop's thread."""
        self._requests.post(opaque, frame, waiter)

    def forget(self, opaque: int) -> None:
        """Drop the waiter of that answer."""
        self._requests.pending.pop(opaque, None)

    def unanswered(self, opaque: int, waited_ms: float) -> None:
        """Drop the waiter of an answer that has not come in its time (invariant 2)."""
        self.forget(opaque)
        self.in_vain(waited_ms)

    def in_vain(self, waited_ms: float) -> None:
        """Note that a request has waited so long for nothing (invariant 2)."""
        notify = self._on_silent
        if notify is None or self.is_silent or self.closed or waited_ms < _SILENT_MS_MIN:
            return
        if self._monotonic_ms() - self.last_read_ms >= waited_ms - _ROUNDED_MS:
            self.is_silent = True
            notify(self)

    @property
    def is_asking(self) -> bool:
        """Return True if a request waits for its answer."""
        return bool(self._requests.pending)

    def invoke(
        self, command: RemotingCommand, timeout_ms: int
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Send a request and wait for its answer.

        Raises: RequestTimeout, ConnectionLost, TooManyRequests.
        """
        return coroutines.invoke(self, command, timeout_ms)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises: ConnectionLost if already closed."""
        self._requests.oneway(command)

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

    # ------------------------------------------------------------ answers

    def send(self, reply: RemotingCommand | bytes | Sequence[Buffer]) -> None:
        """Write one frame, together with the other replies of a read; dropped if the connection is closed."""
        self._outbox.send(encode(reply) if isinstance(reply, RemotingCommand) else reply)

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run` now, or once the peer has read the data waiting for it."""
        self._dispatch.when_read(run)

    def may_keep(self, command: RemotingCommand) -> bool:
        """Return True if there is room to keep one more request until something else has answered."""
        return self._read_gate.may_keep(command)

    def read_again(self) -> None:
        """Resume reading: there is room for its half frame."""
        self._read_gate.read_again()

    def encrypt_by(self, layer: TlsLayer) -> None:
        """Let all that is written go through this layer."""
        self._outbox.encrypt_by(layer)

    def _count_unread(self, size: int) -> None:
        if self._shared_limits is not None:
            self._shared_limits.unread(self, size)

    # ------------------------------------------------------------ ending

    @property
    def last_ms(self) -> int:
        """Return when something was read or written last, monotonic."""
        return max(self.last_read_ms, self._outbox.last_write_ms)

    @property
    def partial_since_ms(self) -> int:
        """Return since when a frame is incomplete, monotonic; 0: none is."""
        return self._read_gate.partial_since_ms

    @property
    def writable(self) -> bool:
        """False once closed or closing."""
        transport = self._transport
        return not (
            self.closed or self._outbox.is_over or transport is None or transport.is_closing()
        )

    def refuse(self, error: ProtocolError) -> None:
        """Close it because of bad bytes."""
        log.warning("connection closed: bad bytes peer=%s reason=%r", self.peer, str(error))
        if isinstance(error, UnknownEncoding):
            # Whole frames come from a program that can read why; its opaque cannot be read.
            flag = int(FrameFlag.RESPONSE)
            self.send(RemotingCommand(ResponseCode.SYSTEM_ERROR, flag=flag, remark=str(error)))
        # The answers to the requests before it, too.
        self._outbox.flush()
        self.close()

    def close(self) -> None:
        """Close once everything written has left."""
        if not self._outbox.corked:
            self._outbox.flush()
        self._outbox.end()

    def end(self) -> None:
        """Close it as the transport would have done at its peer's end."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unwritten data is lost."""
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> asyncio.Transport:
        """Give the transport away; this connection is over."""
        transport, self._transport = self._transport, None
        assert transport is not None
        self._read_gate.close()
        self.connection_lost(None)
        return transport
