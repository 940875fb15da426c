"""GrpcCall: one gRPC call on its HTTP/2 stream. Source: gRPC over HTTP/2.

    message: 1 byte 0 (not compressed), 4 bytes length (big-endian), the message
    an answer: headers, messages, trailers with grpc-status; an answer of trailers alone is one block

1. A call is answered once, now or later; sends on an ended call (`gone`) are dropped.
2. The holder of a call (`wait`, `answer`) is notified once if the client no longer wants the answer.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol
from urllib.parse import quote

from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.http2.sending import Form, StreamSender
from pocketmq.remoting.errors import CarriedError

PREFIX_SIZE = 5
_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_ANSWER = encode(_HEADERS)
_OK = encode([(b"grpc-status", b"0")])
_FORM = Form(_ANSWER, _OK)
# Characters that a header's value may hold as they are.
_MESSAGE_SAFE = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
_MESSAGE_SIZE_MAX = 1_000
_UNITS_NS = {
    b"H": 3_600 * 10**9,
    b"M": 60 * 10**9,
    b"S": 10**9,
    b"m": 10**6,
    b"u": 1_000,
    b"n": 1,
}


class GrpcStatus(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(CarriedError):
    """The call ends with a gRPC status, which the protocol above has no code for."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Method(NamedTuple):
    """handle: called with each message of a call; what takes long it returns as steps, between which others
    are served. is_session: with each as it arrives, and at the end with None; otherwise a call has one
    message, and is served once the client has sent everything.
    """

    handle: Callable[["GrpcCall", bytes | None], Iterator[None] | None]
    is_session: bool = False


EVERYTHING = 1 << 62
"""Of `unsent`: no byte of the answer was sent."""


class AnswerHolder(Protocol):
    """The holder of an answer, which it gives up when the client no longer wants it."""

    def gone(self, unsent: int) -> None:
        """Give it up. unsent: bytes of the answer that were not sent."""
        ...


class Carrier(Protocol):
    """The connection of a call: connection.GrpcConnection."""

    sending: StreamSender
    peer: str
    host: bytes
    closed: bool

    @property
    def ip(self) -> str: ...

    @property
    def is_backed_up(self) -> bool: ...

    def __hash__(self) -> int: ...

    def abort(self) -> None: ...

    def when_read(self, run: Callable[[], None], /) -> None: ...

    def finished(self, call: "GrpcCall") -> None: ...

    def flush_soon(self) -> None: ...


class GrpcCall:
    """Attributes: connection; metadata (headers by name); gone; held (2); state (kept by the server of a
    session); body (an incomplete message, with the frames before it; None without one).
    """

    __slots__ = (
        "_answering",
        "_began_ms",
        "body",
        "connection",
        "gone",
        "held",
        "metadata",
        "method",
        "state",
        "stream_id",
    )

    def __init__(
        self,
        connection: Carrier,
        stream_id: int,
        method: Method,
        metadata: dict[bytes, bytes],
        began_ms: int,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.method = method
        self.metadata = metadata
        self._began_ms = began_ms
        self.body: bytearray | None = None
        self.gone = False
        self.held: AnswerHolder | None = None
        self.state: object = None
        self._answering = False

    def text(self, name: bytes) -> str:
        """Return a header's text; empty without it."""
        return self.metadata.get(name, b"").decode("utf-8", "replace")

    @property
    def deadline_ms(self) -> int | None:
        """Return until when the client waits (monotonic); None: it did not say."""
        given = self.metadata.get(b"grpc-timeout")
        left_ms = None if given is None else timeout_ms(given)
        return None if left_ms is None else self._began_ms + left_ms

    def reply(self, message: bytes) -> None:
        """Answer with one message and end successfully."""
        if not self.gone:
            connection = self.connection
            connection.sending.answer(self.stream_id, _FORM, framed(message))
            connection.finished(self)

    def write(self, framed_messages: bytes) -> None:
        """Send messages of the answer, already framed."""
        if self.gone:
            return
        sending = self.connection.sending
        if not self._answering:
            self._answering = True
            sending.respond(self.stream_id, _ANSWER)
        sending.send(self.stream_id, framed_messages)
        self.connection.flush_soon()

    def wait(self, held: AnswerHolder | None) -> None:
        """Answer later; until then `held` is notified if the client disconnects. None: it waits no longer."""
        self.held = held

    def answer(self, framed_messages: bytes, held: AnswerHolder | None = None) -> None:
        """Answer successfully, to the end; `held` is notified if the client leaves before it has it all."""
        self.held = held
        if self.gone:
            # It went while the answer was made.
            if held is not None:
                held.gone(len(framed_messages))
            return
        self.write(framed_messages)
        self.finish()

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call, after what was written before."""
        if self.gone:
            return
        trailers = _OK if status is GrpcStatus.OK else _trailers(status, text)
        if not self._answering:
            trailers = _ANSWER + trailers
        self._answering = True
        self.connection.sending.finish(self.stream_id, trailers)
        self.connection.finished(self)

    @property
    def unsent(self) -> int:
        """Return the bytes of the answer that wait for the peer."""
        stream = self.connection.sending.streams.get(self.stream_id)
        return 0 if stream is None else stream.unsent

    def went(self, unsent: int) -> None:
        """Note that the client no longer wants the answer."""
        if self.gone:
            return
        self.gone = True
        if self.held is not None:
            self.held.gone(unsent)


def framed(message: bytes) -> bytes:
    """Prefix a message.

    >>> framed(b"hi").hex()
    '00000000026869'
    """
    return b"\0" + len(message).to_bytes(4, "big") + message


def _trailers(status: GrpcStatus, text: str) -> bytes:
    message = quote(text[:_MESSAGE_SIZE_MAX], safe=_MESSAGE_SAFE).encode()
    return encode([(b"grpc-status", b"%d" % status), (b"grpc-message", message)])


def timeout_ms(text: bytes) -> int | None:
    """Parse a grpc-timeout, a number of up to 8 digits with a unit; None: malformed.

    >>> [timeout_ms(text) for text in (b"3S", b"31536000S", b"500m", b"7999123u", b"7n", b"S")]
    [3000, 31536000000, 500, 7999, 0, None]
    """
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or len(number) > 8:
        return None
    factor = _UNITS_NS.get(unit)
    return None if factor is None else int(number) * factor // 10**6
