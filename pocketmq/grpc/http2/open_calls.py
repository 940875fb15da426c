"""OpenCalls: the calls of one connection, from what comes of their streams to their methods.

1. Incomplete messages of all connections together are bounded (limits.py); a single one by message_size_max.
2. A client that resets a stream in the same read in which its call was answered has read nothing of it:
   all that the call held is given up.
3. Messages of one call, and the steps of one message, are steps that the connection takes in turns.
Owner: its GrpcConnection, an argument and no attribute: a cycle would wait for the garbage collector.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Protocol

from pocketmq.grpc.http2.call import (
    EVERYTHING,
    PREFIX_SIZE,
    Carrier,
    GrpcCall,
    GrpcError,
    GrpcStatus,
    Method,
)
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.http2.protocol import StreamData, StreamGone, StreamHeaders
from pocketmq.grpc.http2.sending import StreamSender
from pocketmq.remoting.transport.limits import LimitedConnection, SharedLimits

log = logging.getLogger(__name__)

# Of one lasting call, while more than that waits: it is ended then, as its next messages cannot be kept.
_SESSION_UNSENT_MAX = 65_536
# Of a call's headers, where many calls of one connection are open: together they are kept.
_MANY_CALLS, _HEADERS_SIZE_MAX = 128, 4_096
_NOT_GRPC = encode([(b":status", b"415")])
_NOT_POST = encode([(b":status", b"405")])


class CallConnection(Carrier, LimitedConnection, Protocol):
    """The connection that brings the calls: connection.GrpcConnection."""


class OpenCalls:
    """Attributes: open (by stream), held (others' half messages come first), steps (what is left of the last
    event).
    """

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        shared_limits: SharedLimits,
        message_size_max: int,
        sending: StreamSender,
    ) -> None:
        """methods: by path."""
        self._methods = methods
        self._shared_limits = shared_limits
        self._message_size_max = message_size_max
        self._sending = sending
        self.open: dict[int, GrpcCall] = {}
        # Answered calls whose client cannot have read the answer when it sent what is read now.
        self._unwritten: dict[int, GrpcCall] = {}
        self._half_size = 0
        self.held = False
        self.steps: Iterator[None] | None = None

    def leave(self) -> list[GrpcCall]:
        """Return the open calls, whose connection is lost."""
        calls = list(self.open.values())
        self.open.clear()
        self.steps = None
        return calls

    def written(self, *, is_all: bool) -> None:
        """Note that answers are written; is_all: those to everything that was read."""
        if is_all:
            self._unwritten.clear()
        late = self._sending.late
        if late:
            for stream_id in late:
                call = self.open.pop(stream_id, None)
                if call is not None:
                    call.gone = True
            late.clear()

    def serve(self, connection: CallConnection, event: StreamData | StreamGone) -> None:
        """Serve what comes of a call that has begun."""
        call = self.open.get(event.stream_id)
        if call is None:
            if isinstance(event, StreamGone):
                answered = self._unwritten.pop(event.stream_id, None)
                if answered is not None and answered.held is not None:
                    answered.held.gone(EVERYTHING)
        elif isinstance(event, StreamData):
            self._take(connection, call, event.data, ended=event.ended)
        else:
            self._forget(connection, call)
            call.went(event.unsent or 0)

    def begin(self, connection: CallConnection, request: StreamHeaders) -> None:
        stream_id, headers, ended, data = request
        if headers[b":method"] != b"POST":
            self._sending.finish(stream_id, _NOT_POST)
            return
        if not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            self._sending.finish(stream_id, _NOT_GRPC)
            return
        method = self._methods.get(headers[b":path"], _UNKNOWN)
        call = GrpcCall(connection, stream_id, method, headers, connection.last_read_ms)
        self.open[stream_id] = call
        if len(self.open) > _MANY_CALLS and sum(map(len, headers.values())) > _HEADERS_SIZE_MAX:
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
                and _size(data) == size <= self._message_size_max
                and not method.is_session
            ):
                self._handle(call, data[PREFIX_SIZE:])
            else:
                self._take(connection, call, data, ended=True)

    def _handle(self, call: GrpcCall, message: bytes) -> None:
        """Handle a whole call's only message, as nearly all have it."""
        try:
            steps = call.method.handle(call, message)
            if steps is not None:
                self.steps = self._stepped(call, steps)
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
        log.error(
            "call failed peer=%s path=%r", call.connection.peer, call.text(b":path"), exc_info=error
        )
        call.finish(GrpcStatus.INTERNAL, f"{type(error).__name__}: {error}")

    def _take(
        self, connection: CallConnection, call: GrpcCall, data: bytes, *, ended: bool
    ) -> None:
        """Handle bytes of a call's messages, the last ones or not."""
        if call.body is not None or not ended:
            try:
                whole = self._gather(connection, call, data, ended=ended)
            except GrpcError as error:
                call.finish(error.status, str(error))
                return
            if whole is None:
                return
            data = whole
        self.steps = self._stepped(call, self._messages(connection, call, data, ended=ended))

    def _messages(
        self, connection: CallConnection, call: GrpcCall, data: bytes, *, ended: bool
    ) -> Iterator[None]:
        """Handle one message after the other. Raises: GrpcError."""
        method = call.method
        while data and not call.gone:
            if (
                method.is_session
                and call.connection.is_backed_up
                and call.unsent > _SESSION_UNSENT_MAX
            ):
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    "too many answers of this call wait to be read: read them first",
                )
            message, data = self._cut(connection, call, data, ended=ended)
            if message is not None:
                yield from method.handle(call, message) or ()
            yield
        if ended and method.is_session and not call.gone:
            yield from method.handle(call, None) or ()

    def _gather(
        self, connection: CallConnection, call: GrpcCall, data: bytes, *, ended: bool
    ) -> bytes | None:
        """Return a call's bytes so far, once they can be served. Raises: GrpcError."""
        body = call.body
        if body is None:
            body = call.body = bytearray()
        body += data
        self._keep(connection, len(data))
        self._check_size(body)
        if not (ended or (call.method.is_session and _is_whole(body))):
            return None
        data = bytes(body)
        self._drop(connection, call)
        return data

    def _cut(
        self, connection: CallConnection, call: GrpcCall, data: bytes, *, ended: bool
    ) -> tuple[bytes | None, bytes]:
        """Return the first message and what is behind it; None and nothing if it is incomplete.

        Raises: GrpcError.
        """
        size = int.from_bytes(data[1:PREFIX_SIZE], "big")
        end = PREFIX_SIZE + size
        if size > self._message_size_max:
            self._check_size(data)
        if len(data) == end and not data[0]:
            return data[PREFIX_SIZE:], b""
        if len(data) < end:
            if ended:
                raise GrpcError(GrpcStatus.INTERNAL, "the call ended within a message")
            call.body = bytearray(data)
            self._keep(connection, len(data))
            return None, b""
        if data[0]:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "messages must not be compressed")
        if not call.method.is_session:
            raise GrpcError(GrpcStatus.INTERNAL, "more than one message in a call that takes one")
        return data[PREFIX_SIZE:end], data[end:]

    def _check_size(self, data: bytes | bytearray) -> None:
        """Check the size of a message. Raises: GrpcError."""
        size_max = self._message_size_max
        if len(data) >= PREFIX_SIZE and _size(data) > size_max:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"the message has {_size(data)} bytes, but at most {size_max} are allowed",
            )

    def _keep(self, connection: CallConnection, size: int) -> None:
        """Account for more bytes of incomplete messages (invariant 3)."""
        self._half_size += size
        self.held = not self._shared_limits.half_frame(connection, self._half_size)

    def _drop(self, connection: CallConnection, call: GrpcCall) -> None:
        """Drop a call's buffer: its message is complete, or not wanted."""
        if call.body is not None:
            self._keep(connection, -len(call.body))
            call.body = None

    def finished(self, connection: CallConnection, call: GrpcCall) -> None:
        """Handle a call that was answered to its end, on our side."""
        if call.held is not None:
            if call.stream_id in self._sending.streams:
                # Some of it may yet be refused.
                return
            self._unwritten[call.stream_id] = call
        self.open.pop(call.stream_id, None)
        if call.body is not None:
            self._drop(connection, call)
        call.gone = True

    def _forget(self, connection: CallConnection, call: GrpcCall) -> None:
        self.open.pop(call.stream_id, None)
        self._drop(connection, call)


def _unknown(call: GrpcCall, message: bytes | None) -> None:
    """Never called: the call was answered at its beginning."""


_UNKNOWN = Method(_unknown)


def _size(data: bytes | bytearray) -> int:
    return int.from_bytes(data[1:PREFIX_SIZE], "big")


def _is_whole(data: bytes | bytearray) -> bool:
    return len(data) >= PREFIX_SIZE and len(data) >= PREFIX_SIZE + _size(data)
