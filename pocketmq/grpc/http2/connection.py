"""GrpcConnection: one connection of the port: bytes, TLS, HTTP/2, calls.

1. The data of one read is served in turns of TURN_MS, as are the messages of one frame and the steps of one
   message; nothing more is read before that is done. So are the calls of a lost connection given up. The loop
   reads from a socket many times in a turn: after a read of LONG_MS it is made to look at the others first.
2. While the peer does not read, nothing is read from it. Data that waits for its flow control does not stop
   reading, since its window updates come the same way; but nothing large is added to it (`when_read`).
Owner: GrpcServer. Its calls: open_calls.py.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from pocketmq.grpc.http2.call import (
    GrpcCall,
    Method,
)
from pocketmq.grpc.http2.frames import Http2Error
from pocketmq.grpc.http2.open_calls import OpenCalls
from pocketmq.grpc.http2.protocol import Http2Server, StreamHeaders
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.hosts import pack_address
from pocketmq.remoting.transport.limits import SharedLimits
from pocketmq.remoting.transport.peer import TURN_MS
from pocketmq.remoting.transport.tls import ServerTls, TlsLayer
from pocketmq.remoting.transport.turns import Turns

log = logging.getLogger(__name__)

_TLS_HANDSHAKE = 0x16
_JOIN_SIZE_MAX = 65_536
_LONG_MS = 1
_WRITE_BUFFER_HIGH = 1 << 20
# Below it what waits is not counted.
_UNREAD_MIN = 65_536
# Answers beyond this wait until the peer's windows have let others go.
_UNSENT_MAX = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Shared by all connections of the port. methods: by path; closed: called with a closed connection; lost:
    the open calls of closed ones.
    """

    methods: Mapping[bytes, Method]
    clock: Clock
    shared_limits: SharedLimits
    tls: ServerTls | None
    message_size_max: int
    closed: Callable[["GrpcConnection"], None]
    lost: Turns[GrpcCall]


class GrpcConnection(asyncio.Protocol):
    """Attributes: peer (`ip:port`), host (the same in the form of records), local, last_read_ms
    (monotonic), closed, calls (the open ones).
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._http2 = Http2Server()
        self.sending = self._http2.sending
        self._calls = OpenCalls(
            port.methods, port.shared_limits, port.message_size_max, self.sending
        )
        self._tls: TlsLayer | None = None
        self._sniffed = False
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Why nothing is read, besides what calls hold up: the peer does not read; this turn is over.
        self._paused = self._turn_over = False
        self._is_reading = True
        self._corked = self._flush_scheduled = False
        self._has_unread = False
        self._later: deque[Callable[[], None]] = deque()
        self.peer = self.local = ""
        self.host = b"\0" * 8
        self.closed = False
        self.last_read_ms = 0

    def __repr__(self) -> str:
        return f"<GrpcConnection {self.peer}{' closed' if self.closed else ''}>"

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # cast: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        self.peer, self.host = _address(transport.get_extra_info("peername"))
        self.local, _ = _address(transport.get_extra_info("sockname"))
        self.last_read_ms = self._port.clock.monotonic_ms()
        refusal = self._port.shared_limits.enter(self.ip)
        if refusal is not None:
            log.warning("connection refused peer=%s reason=%r", self.peer, refusal)
            self.abort()

    @property
    def ip(self) -> str:
        return self.peer.rpartition(":")[0]

    def data_received(self, data: bytes) -> None:
        self.last_read_ms = self._port.clock.monotonic_ms()
        if not self._sniffed and not self._sniff(data):
            return
        if self._tls is not None:
            data = self._decrypt(data)
            if not data:
                return
        self._http2.receive(data)
        self._work()

    def _sniff(self, data: bytes) -> bool:
        """Return True if the first byte is acceptable: it distinguishes TLS."""
        self._sniffed = True
        tls = self._port.tls
        if data[:1] == bytes((_TLS_HANDSHAKE,)):
            context = None if tls is None else tls.context()
            if context is None:
                log.warning("connection closed: no TLS here peer=%s", self.peer)
                self.abort()
                return False
            self._tls = TlsLayer(context)
        elif tls is not None and not tls.plain_allowed:
            log.warning("connection closed: TLS is required peer=%s", self.peer)
            self.abort()
            return False
        return True

    def _decrypt(self, data: bytes) -> bytes:
        assert self._tls is not None
        assert self._transport is not None
        try:
            plain, answer, ended = self._tls.feed(data)
        except ssl.SSLError as error:
            log.warning("connection closed: TLS failed peer=%s reason=%s", self.peer, error.reason)
            self.abort()
            return b""
        if answer:
            self._transport.write(answer)
        if ended:
            self.close()
        return plain

    def _work(self) -> None:
        """Serve what has arrived, for one turn (invariant 1)."""
        began_ms = self._port.clock.monotonic_ms()
        clock_ms = self._port.clock.monotonic_ms
        http2, calls = self._http2, self._calls
        self._corked = True
        try:
            while not self._paused:
                if calls.steps is not None:
                    if next(calls.steps, self) is self:
                        calls.steps = None
                else:
                    event = http2.next_event()
                    if event is None:
                        break
                    if isinstance(event, StreamHeaders):
                        calls.begin(self, event)
                    else:
                        calls.serve(self, event)
                if clock_ms() - began_ms >= TURN_MS:
                    self._go_on_soon()
                    break
        except Http2Error as error:
            self._corked = False
            log.warning("connection closed: bad bytes peer=%s reason=%r", self.peer, str(error))
            self._flush()
            self.close()
            return
        finally:
            self._corked = False
        self._flush()
        while self._later and not self.is_backed_up and clock_ms() - began_ms < TURN_MS:
            self._later.popleft()()
        if clock_ms() - began_ms >= _LONG_MS:
            self._go_on_soon()
        self._update_reading()

    def _go_on_soon(self) -> None:
        if not self._turn_over and self._loop is not None:
            self._turn_over = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._turn_over = False
        if not self.closed:
            self._work()

    def _update_reading(self) -> None:
        wanted = not (self._paused or self._calls.held or self._turn_over)
        transport = self._transport
        if wanted == self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def pause_writing(self) -> None:
        self._paused = True
        self._update_reading()
        self._count_unread()

    def resume_writing(self) -> None:
        self._paused = False
        self._count_unread()
        self._go_on_soon()

    def _count_unread(self) -> None:
        """Count what waits in memory: for the peer to read, or for its windows."""
        size = self.sending.unsent
        if self._paused and self._transport is not None:
            size += self._transport.get_write_buffer_size()
        size = size if size >= _UNREAD_MIN else 0
        if size or self._has_unread:
            self._has_unread = size > 0
            self._port.shared_limits.unread(self, size)

    def read_again(self) -> None:
        """Resume reading: there is room for its half messages."""
        self._calls.held = False
        self._update_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._port.lost.add(self._calls.leave())
        self._later.clear()
        self._port.shared_limits.leave(self, self.ip)
        self._port.closed(self)

    # ------------------------------------------------------------ calls

    @property
    def calls(self) -> dict[int, GrpcCall]:
        """Return the open calls, by stream."""
        return self._calls.open

    def finished(self, call: GrpcCall) -> None:
        """Handle a call that was answered to its end, on our side."""
        self._calls.finished(self, call)
        if not self._corked:
            self.flush_soon()

    # ------------------------------------------------------------ output

    def when_read(self, run: Callable[[], None]) -> None:
        """Call `run` now, or once the peer has read the data waiting for it."""
        if self._paused or self._later or self.sending.unsent > _UNSENT_MAX:
            self._later.append(run)
        else:
            run()

    @property
    def is_backed_up(self) -> bool:
        """Return True if the peer leaves too much unread."""
        return self._paused or self.sending.unsent > _UNSENT_MAX

    def flush_soon(self) -> None:
        """Schedule a write; within a read it waits for the rest of that read."""
        if not (self._corked or self._flush_scheduled) and self._loop is not None:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._calls.written(is_all=not self._turn_over)
        if self._has_unread or self.sending.unsent >= _UNREAD_MIN:
            self._count_unread()
        out = self._http2.take()
        transport = self._transport
        if not out or transport is None or transport.is_closing():
            return
        if self._tls is not None:
            transport.write(self._tls.encrypt(b"".join(out)))
        elif len(out) == 1 or sum(map(len, out)) <= _JOIN_SIZE_MAX:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)

    def leave(self) -> None:
        """Say goodbye: lasting calls end, others may be answered yet.

        Calls of clients that just said goodbye end, too: a closing client has no listener left for the error
        of a lost connection, and Node ends a process with an unhandled error.
        """
        for call in list(self.calls.values()):
            if call.method.is_session:
                call.finish()
        self._http2.leave()
        self._flush()

    def close(self) -> None:
        """Close once everything written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _address(name: object) -> tuple[str, bytes]:
    """Return `ip:port` and the packed address; both empty if it is not an address."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "", b"\0" * 8
    ip, port = str(name[0]), int(name[1])
    text = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return text, pack_address(ip, port)
