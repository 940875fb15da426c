"""GrpcConnection: one connection of the port: bytes, TLS, HTTP/2, calls.

1. The data of one read is served in turns of TURN_MS, as are the messages of one frame and the steps of one
   message; nothing more is read before that is done. So are the calls of a lost connection given up. The loop
   reads from a socket many times in a turn: after a read of LONG_MS it is made to look at the others first.
2. While the peer does not read, nothing is read from it. Data that waits for its flow control does not stop
   reading, since its window updates come the same way; but nothing large is added to it (`when_read`).
3. Incomplete messages of all connections together are bounded (limits.py); a single one by message_size_max.
4. A client that resets a stream in the same read in which its call was answered has read nothing of it:
   all that the call held is given up.
Owner: GrpcServer. One noun: a connection, with its calls.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from pocketmq.grpc.http2.call import (
    EVERYTHING,
    PREFIX_SIZE,
    GrpcCall,
    GrpcError,
    GrpcStatus,
    Method,
)
from pocketmq.grpc.http2.frames import Http2Error
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.http2.protocol import Http2Server, StreamData, StreamGone, StreamHeaders
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
# Of one lasting call, while more than that waits: it is ended then, as its next messages cannot be kept.
_SESSION_UNSENT_MAX = 65_536
# Of a call's headers, where many calls of one connection are open: together they are kept.
_MANY_CALLS, _HEADERS_SIZE_MAX = 128, 4_096
_NOT_GRPC = encode([(b":status", b"415")])
_NOT_POST = encode([(b":status", b"405")])


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
        self.calls: dict[int, GrpcCall] = {}
        # Answered calls whose client cannot have read the answer when it sent what is read now.
        self._unwritten: dict[int, GrpcCall] = {}
        self._half_size = 0
        self._tls: TlsLayer | None = None
        self._sniffed = False
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Why nothing is read: the peer does not read; others' half messages come first; this turn is over.
        self._paused = self._held = self._turn_over = False
        self._is_reading = True
        self._corked = self._flush_scheduled = False
        self._has_unread = False
        self._later: deque[Callable[[], None]] = deque()
        # What is left of the last event (invariant 1).
        self._steps: Iterator[None] | None = None
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
        http2 = self._http2
        self._corked = True
        try:
            while not self._paused:
                if self._steps is not None:
                    if next(self._steps, self) is self:
                        self._steps = None
                else:
                    event = http2.next_event()
                    if event is None:
                        break
                    if isinstance(event, StreamHeaders):
                        self._begin(event)
                    else:
                        self._serve(event)
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
        wanted = not (self._paused or self._held or self._turn_over)
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
        self._held = False
        self._update_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        calls, self.calls = self.calls, {}
        self._port.lost.add(calls.values())
        self._later.clear()
        self._steps = None
        self._port.shared_limits.leave(self, self.ip)
        self._port.closed(self)

    # ------------------------------------------------------------ calls

    def _serve(self, event: StreamData | StreamGone) -> None:
        """Serve what comes of a call that has begun."""
        call = self.calls.get(event.stream_id)
        if call is None:
            if isinstance(event, StreamGone):
                answered = self._unwritten.pop(event.stream_id, None)
                if answered is not None and answered.held is not None:
                    answered.held.gone(EVERYTHING)
        elif isinstance(event, StreamData):
            self._take(call, event.data, ended=event.ended)
        else:
            self._forget(call)
            call.went(event.unsent or 0)

    def _begin(self, request: StreamHeaders) -> None:
        stream_id, headers, ended, data = request
        if headers[b":method"] != b"POST":
            self.sending.finish(stream_id, _NOT_POST)
            return
        if not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            self.sending.finish(stream_id, _NOT_GRPC)
            return
        method = self._port.methods.get(headers[b":path"], _UNKNOWN)
        call = GrpcCall(self, stream_id, method, headers, self.last_read_ms)
        self.calls[stream_id] = call
        if len(self.calls) > _MANY_CALLS and sum(map(len, headers.values())) > _HEADERS_SIZE_MAX:
            call.finish(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"while more than {_MANY_CALLS} calls are open, one has headers of at most "
                f"{_HEADERS_SIZE_MAX} bytes",
            )
        elif method is _UNKNOWN:
            path = headers[b":path"][:200].decode("utf-8", "replace")
            call.finish(GrpcStatus.UNIMPLEMENTED, f"there is no method {path}")
        elif ended:
            size = len(data) - PREFIX_SIZE
            if (
                size >= 0
                and not data[0]
                and _size(data) == size <= self._port.message_size_max
                and not method.is_session
            ):
                self._handle(call, data[PREFIX_SIZE:])
            else:
                self._take(call, data, ended=True)

    def _handle(self, call: GrpcCall, message: bytes) -> None:
        """Handle a whole call's only message, as nearly all have it."""
        try:
            steps = call.method.handle(call, message)
            if steps is not None:
                self._steps = self._stepped(call, steps)
        except GrpcError as error:
            call.finish(error.status, str(error))
        except Exception as defect:  # noqa: BLE001
            self._broke(call, defect)

    def _stepped(self, call: GrpcCall, steps: Iterator[None]) -> Iterator[None]:
        """Take steps whose failure ends their call."""
        try:
            yield from steps
        except GrpcError as error:
            call.finish(error.status, str(error))
        except Exception as defect:  # noqa: BLE001
            self._broke(call, defect)

    def _broke(self, call: GrpcCall, error: Exception) -> None:
        log.error("call failed peer=%s path=%r", self.peer, call.text(b":path"), exc_info=error)
        call.finish(GrpcStatus.INTERNAL, f"{type(error).__name__}: {error}")

    def _take(self, call: GrpcCall, data: bytes, *, ended: bool) -> None:
        """Handle bytes of a call's messages, the last ones or not."""
        if call.body is not None or not ended:
            try:
                whole = self._gather(call, data, ended=ended)
            except GrpcError as error:
                call.finish(error.status, str(error))
                return
            if whole is None:
                return
            data = whole
        self._steps = self._stepped(call, self._messages(call, data, ended=ended))

    def _messages(self, call: GrpcCall, data: bytes, *, ended: bool) -> Iterator[None]:
        """Handle one message after the other. Raises: GrpcError."""
        method = call.method
        while data and not call.gone:
            if method.is_session and self.is_backed_up and call.unsent > _SESSION_UNSENT_MAX:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    "too many answers of this call wait to be read: read them first",
                )
            message, data = self._cut(call, data, ended=ended)
            if message is not None:
                yield from method.handle(call, message) or ()
            yield
        if ended and method.is_session and not call.gone:
            yield from method.handle(call, None) or ()

    def _gather(self, call: GrpcCall, data: bytes, *, ended: bool) -> bytes | None:
        """Return a call's bytes so far, once they can be served. Raises: GrpcError."""
        body = call.body
        if body is None:
            body = call.body = bytearray()
        body += data
        self._keep(len(data))
        self._check_size(body)
        if not (ended or (call.method.is_session and _is_whole(body))):
            return None
        data = bytes(body)
        self._drop(call)
        return data

    def _cut(self, call: GrpcCall, data: bytes, *, ended: bool) -> tuple[bytes | None, bytes]:
        """Return the first message and what is behind it; None and nothing if it is incomplete.

        Raises: GrpcError.
        """
        size = int.from_bytes(data[1:PREFIX_SIZE], "big")
        end = PREFIX_SIZE + size
        if size > self._port.message_size_max:
            self._check_size(data)
        if len(data) == end and not data[0]:
            return data[PREFIX_SIZE:], b""
        if len(data) < end:
            if ended:
                raise GrpcError(GrpcStatus.INTERNAL, "the call ended within a message")
            call.body = bytearray(data)
            self._keep(len(data))
            return None, b""
        if data[0]:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "messages must not be compressed")
        if not call.method.is_session:
            raise GrpcError(GrpcStatus.INTERNAL, "more than one message in a call that takes one")
        return data[PREFIX_SIZE:end], data[end:]

    def _check_size(self, data: bytes | bytearray) -> None:
        """Check the size of a message. Raises: GrpcError."""
        size_max = self._port.message_size_max
        if len(data) >= PREFIX_SIZE and _size(data) > size_max:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the message has {_size(data)} bytes, but at most {size_max} are allowed",
            )

    def _keep(self, size: int) -> None:
        """Account for more bytes of incomplete messages (invariant 3)."""
        self._half_size += size
        self._held = not self._port.shared_limits.half_frame(self, self._half_size)

    def _drop(self, call: GrpcCall) -> None:
        """Drop a call's buffer: its message is complete, or not wanted."""
        if call.body is not None:
            self._keep(-len(call.body))
            call.body = None

    def finished(self, call: GrpcCall) -> None:
        """Handle a call that was answered to its end, on our side."""
        if call.held is not None:
            if call.stream_id in self.sending.streams:
                # Some of it may yet be refused.
                return
            self._unwritten[call.stream_id] = call
        self.calls.pop(call.stream_id, None)
        if call.body is not None:
            self._drop(call)
        call.gone = True
        if not self._corked:
            self.flush_soon()

    def _forget(self, call: GrpcCall) -> None:
        self.calls.pop(call.stream_id, None)
        self._drop(call)

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
        if not self._turn_over:
            self._unwritten.clear()
        for stream_id in self.sending.late:
            call = self.calls.pop(stream_id, None)
            if call is not None:
                call.gone = True
        self.sending.late.clear()
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


def _unknown(call: GrpcCall, message: bytes | None) -> None:
    """Never called: the call was answered at its beginning."""


_UNKNOWN = Method(_unknown)


def _size(data: bytes | bytearray) -> int:
    return int.from_bytes(data[1:PREFIX_SIZE], "big")


def _is_whole(data: bytes | bytearray) -> bool:
    return len(data) >= PREFIX_SIZE and len(data) >= PREFIX_SIZE + _size(data)


def _address(name: object) -> tuple[str, bytes]:
    """Return `ip:port` and the packed address; both empty if it is not an address."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "", b"\0" * 8
    ip, port = str(name[0]), int(name[1])
    text = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
    return text, pack_address(ip, port)
