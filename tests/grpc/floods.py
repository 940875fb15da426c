"""Frames of HTTP/2 by hand, and floods of those that bring nothing: one for each number."""

from pocketmq.grpc.http2.frames import Flag, FrameType, head
from pocketmq.grpc.http2.frames import settings as settings_frame
from pocketmq.grpc.http2.hpack import encode

BLOCK = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/M")])


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream_id: int = 0) -> bytes:
    return head(len(payload), kind, flags, stream_id) + payload


def request(stream_id: int = 1, block: bytes = BLOCK, flags: int = Flag.END_HEADERS) -> bytes:
    return frame(FrameType.HEADERS, block, flags=flags, stream_id=stream_id)


OPEN, ALL = request(), Flag.END_HEADERS | Flag.END_STREAM
FLOODS = {
    "resets": lambda number: (
        request(1 + 2 * number, flags=ALL)
        + frame(FrameType.RST_STREAM, bytes((0, 0, 0, 8)), stream_id=1 + 2 * number)
    ),
    "pings": lambda number: frame(FrameType.PING, b"8" * 8),
    "settings": lambda number: settings_frame({}),
    "empty data": lambda number: (OPEN if not number else b"") + frame(FrameType.DATA, stream_id=1),
    "priorities": lambda number: frame(FrameType.PRIORITY, bytes(5), stream_id=1),
    "small windows": lambda number: frame(FrameType.WINDOW_UPDATE, bytes((0, 0, 0, 1))),
    "unknown frames": lambda number: frame(77),
}
