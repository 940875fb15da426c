"""HTTP/2 frames, and the rules for a request's headers. Source: RFC 9113.

offset  size  frame (big-endian)
     0     3  length of the payload
     3     1  kind
     4     1  flags
     5     4  stream, 31 bits; 0: the connection
     9        payload
"""

import struct
from enum import IntEnum

from pocketmq.grpc.http2.hpack import Header
from pocketmq.remoting.errors import CarriedError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE = 9
# Largest frame that every peer accepts, and that this server accepts.
FRAME_SIZE_MAX = 16_384
WINDOW_MAX = (1 << 31) - 1
WINDOW_DEFAULT = 65_535


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Plain numbers when they are combined, eight times in a call: IntFlag would make an object each time.
class Flag(IntEnum):
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


_PADDED = int(Flag.PADDED)


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2Error(CarriedError):
    """The peer broke the protocol, and its connection ends; the GOAWAY is in the output."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamError(CarriedError):
    """The peer broke the protocol on one stream, which is reset; the others continue."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def head(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    """Encode the first nine bytes of a frame.

    >>> head(4, FrameType.WINDOW_UPDATE, 0, 1).hex()
    '000004080000000001'
    """
    return struct.pack(">IBI", size << 8 | kind, flags, stream_id)


def window_update(stream_id: int, increment: int) -> bytes:
    return head(4, FrameType.WINDOW_UPDATE, 0, stream_id) + increment.to_bytes(4, "big")


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return head(4, FrameType.RST_STREAM, 0, stream_id) + code.to_bytes(4, "big")


def goaway(last_stream_id: int, code: ErrorCode, text: str) -> bytes:
    payload = struct.pack(">II", last_stream_id, code) + text.encode()[:200]
    return head(len(payload), FrameType.GOAWAY, 0, 0) + payload


def settings(values: dict[Setting, int]) -> bytes:
    payload = b"".join(struct.pack(">HI", name, value) for name, value in values.items())
    return head(len(payload), FrameType.SETTINGS, 0, 0) + payload


def unpadded(payload: bytes, flags: int) -> bytes:
    """Remove the padding. Raises: Http2Error."""
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame with more padding than it has bytes")
    return payload[1 : len(payload) - payload[0]]


_NEEDED = (b":method", b":scheme", b":path")
_REQUEST_PARTS = (*_NEEDED, b":authority")
_NOT_IN_HTTP2 = (
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"transfer-encoding",
    b"upgrade",
)


# The names of good requests, in their order: a client has few of them.
_good: set[tuple[bytes, ...]] = set()
_GOOD_MAX = 64


def check_request(headers: list[Header]) -> dict[bytes, bytes]:
    """Return the headers of a request by name, the last of equal names. Raises: StreamError if malformed."""
    found = dict(headers)
    names = tuple(found)
    if (
        names in _good
        and len(found) == len(headers)
        and found[b":method"]
        and found[b":scheme"]
        and found[b":path"]
        and (b"te" not in found or found[b"te"] == b"trailers")
    ):
        return found
    checked = _checked(headers)
    if len(found) == len(headers) and len(_good) < _GOOD_MAX:
        _good.add(names)
    return checked


def _checked(headers: list[Header]) -> dict[bytes, bytes]:
    """Do the same, one by one."""
    found: dict[bytes, bytes] = {}
    plain = False
    for name, value in headers:
        if name[:1] == b":":
            if plain or name in found or name not in _REQUEST_PARTS:
                raise _malformed(name)
        else:
            plain = True
            if not name or name != name.lower() or name in _NOT_IN_HTTP2:
                raise _malformed(name)
            if name == b"te" and value != b"trailers":
                raise _malformed(name)
        found[name] = value
    if not all(found.get(name) for name in _NEEDED):
        raise StreamError(ErrorCode.PROTOCOL_ERROR, "a request without method, scheme or path")
    return found


def check_trailers(headers: list[Header]) -> None:
    """Check trailers. Raises: StreamError."""
    for name, _ in headers:
        if name[:1] == b":" or name != name.lower():
            raise _malformed(name)


def _malformed(name: bytes) -> StreamError:
    return StreamError(ErrorCode.PROTOCOL_ERROR, f"the header {name[:50]!r} is not allowed there")
