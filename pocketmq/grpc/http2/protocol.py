"""Http2Server: the server's side of one HTTP/2 connection, bytes in and bytes out. Source: RFC 9113, 7541.

    http2.receive(data)                     bytes that came; then, until it returns None:
    event = http2.next_event()              StreamHeaders, StreamData or StreamGone
    http2.sending.respond / send / finish   answers; what is to be written: http2.take()

1. Data from the peer is accepted at once: both windows are reopened immediately. So the owner bounds what it
   keeps, and resets a stream that sends too much.
2. Answers obey both windows of the peer (sending.py).
3. Useless frames cost the peer credit: resets, pings, settings, empty frames, invalid requests. Requests and
   data, either way, earn it. Without credit the connection is closed (ENHANCE_YOUR_CALM).
4. Frames for a closed stream are answered with STREAM_CLOSED; after a reset of ours they are normal.
Owner: the connection; it knows no socket and no clock.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from pocketmq.grpc.http2.frames import (
    FRAME_SIZE_MAX,
    HEAD_SIZE,
    PREFACE,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
    Flag,
    FrameType,
    Http2Error,
    Setting,
    StreamError,
    check_request,
    check_trailers,
    goaway,
    head,
    settings,
    unpadded,
    window_update,
)
from pocketmq.grpc.http2.hpack import HeadersTooLarge, HpackDecoder, HpackError
from pocketmq.grpc.http2.sending import Buffer, Stream, StreamSender

STREAMS_MAX = 1_024
STREAM_WINDOW = 1 << 20
CONNECTION_WINDOW = 8 << 20
_HEADER_LIST_SIZE_MAX = 16_384
_HEADER_BLOCK_SIZE_MAX = 32_768
_CONTINUATIONS_MAX = 8
# Invariant 3.
_CREDIT_MAX = 10_000
_CREDIT_EARNED = 4
_RESET_COST = 20
_SETTINGS_COST = 20
_WORTH_SIZE = 1_024
_HEAD = struct.Struct(">IBI")
_KIND_MAX = int(max(FrameType))
_CONTINUATION = int(FrameType.CONTINUATION)
# Plain numbers: members of an enum are slow to look up, several times in a call.
_END_STREAM, _END_HEADERS, _ACK = int(Flag.END_STREAM), int(Flag.END_HEADERS), int(Flag.ACK)
_PRIORITY = int(Flag.PRIORITY)
_PADDED_OR_PRIORITY = int(Flag.PADDED | Flag.PRIORITY)
_new_tuple = tuple.__new__


class StreamHeaders(NamedTuple):
    """Headers of a new stream. ended: the peer sends nothing more on it; data: what else it sent, then."""

    stream_id: int
    headers: dict[bytes, bytes]
    ended: bool
    data: bytes = b""


class StreamData(NamedTuple):
    """Bytes of a stream; ended: the last ones (they may be none)."""

    stream_id: int
    data: bytes
    ended: bool


class StreamGone(NamedTuple):
    """The peer no longer wants an answer. unsent: bytes that were still to be sent to it; None: the stream
    had ended on our side.
    """

    stream_id: int
    unsent: int | None


Event = StreamHeaders | StreamData | StreamGone


class Http2Server:
    """Attributes: sending (what goes to the peer), last_stream_id."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._has_begun = False
        self._decoder = HpackDecoder(list_size_max=_HEADER_LIST_SIZE_MAX)
        self.sending = StreamSender()
        self._streams = self.sending.streams
        self._counted_frames = 0
        # The header block that CONTINUATION frames continue: stream, flags, parts.
        self._block: tuple[int, int, list[bytes]] | None = None
        self._credit = _CREDIT_MAX
        self._is_first = True
        self._leaving = False
        self._room = CONNECTION_WINDOW
        self.sending.out += [
            settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_HEADER_LIST_SIZE: _HEADER_LIST_SIZE_MAX,
                }
            ),
            window_update(0, CONNECTION_WINDOW - WINDOW_DEFAULT),
        ]
        self.last_stream_id = 0

    # ------------------------------------------------------------ what comes

    def receive(self, data: bytes) -> None:
        """Add bytes from the peer."""
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._at = 0

    @property
    def pending(self) -> int:
        """Return the number of bytes received and not processed yet."""
        return len(self._buffer) - self._at

    def next_event(self) -> Event | None:
        """Return the next event among the bytes so far; None if more must come.

        Raises: Http2Error; the connection is to be closed when `take` is written.
        """
        try:
            if not self._has_begun and not self._preface():
                return None
            return self._frames()
        except Http2Error as error:
            self.sending.out.append(goaway(self.last_stream_id, error.code, str(error)))
            raise

    def _preface(self) -> bool:
        """Return True if the preface is complete."""
        given = self._buffer[self._at : self._at + len(PREFACE)]
        if not PREFACE.startswith(given):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "this port speaks gRPC, which is HTTP/2")
        self._has_begun = len(given) == len(PREFACE)
        if self._has_begun:
            self._at += len(PREFACE)
        return self._has_begun

    def _frames(self) -> Event | None:
        """Process complete frames until one of them is an event."""
        buffer, at = self._buffer, self._at
        there = len(buffer)
        while there >= (begin := at + HEAD_SIZE):
            word, flags, stream_id = _HEAD.unpack_from(buffer, at)
            size, kind = word >> 8, word & 0xFF
            if size > FRAME_SIZE_MAX:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            end = begin + size
            if there < end:
                break
            self._at = end
            if self._block is not None and kind != _CONTINUATION:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
            if self._is_first:
                self._is_first = False
                if kind != FrameType.SETTINGS or flags & _ACK:
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            if kind > _KIND_MAX:
                self._charge(1)
            else:
                payload = buffer[begin:end]
                event: Event | None = _HANDLERS[kind](self, stream_id & WINDOW_MAX, flags, payload)
                if event is not None:
                    return event
            at = self._at
        return None

    def _charge(self, cost: int) -> None:
        """Apply invariant 3."""
        if self._counted_frames != self.sending.sent_frames:
            self._credit += _CREDIT_EARNED * (self.sending.sent_frames - self._counted_frames)
            self._credit = min(self._credit, _CREDIT_MAX)
            self._counted_frames = self.sending.sent_frames
        self._credit -= cost
        if self._credit < 0:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without content")

    # ------------------------------------------------------------ requests

    def _on_headers(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if stream_id % 2 == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a request on stream {stream_id}")
        depends_on = None
        if flags & _PADDED_OR_PRIORITY:
            payload = unpadded(payload, flags)
            if flags & _PRIORITY:
                if len(payload) < 5:
                    raise Http2Error(
                        ErrorCode.FRAME_SIZE_ERROR, "headers too short for their priority"
                    )
                depends_on = int.from_bytes(payload[:4], "big") & WINDOW_MAX
                payload = payload[5:]
        if flags & _END_HEADERS:
            return self._headers_end(stream_id, flags, payload, depends_on)
        self._block = stream_id, flags, [payload]
        self._charge(1)
        return None

    def _on_continuation(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if self._block is None or self._block[0] != stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION without HEADERS")
        _, first_flags, parts = self._block
        parts.append(payload)
        size = sum(map(len, parts))
        if len(parts) > _CONTINUATIONS_MAX or size > _HEADER_BLOCK_SIZE_MAX:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of more than {size} bytes"
            )
        self._charge(1)
        if not flags & _END_HEADERS:
            return None
        self._block = None
        return self._headers_end(stream_id, first_flags, b"".join(parts), None)

    def _headers_end(
        self, stream_id: int, flags: int, block: bytes, depends_on: int | None
    ) -> Event | None:
        """Process a complete header block."""
        too_large = None
        try:
            headers = self._decoder.decode(block)
        except HpackError as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        except HeadersTooLarge as beyond:
            too_large, headers = StreamError(ErrorCode.ENHANCE_YOUR_CALM, str(beyond)), []
        stream = self._streams.get(stream_id)
        if stream is None and stream_id <= self.last_stream_id:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"HEADERS on the closed stream {stream_id}")
        ended = flags & _END_STREAM != 0
        try:
            if stream is None:
                return self._begin(stream_id, headers, too_large, depends_on, ended=ended)
            if stream.peer_ended:
                raise StreamError(ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM")
            if not ended:
                raise StreamError(ErrorCode.PROTOCOL_ERROR, "second HEADERS without END_STREAM")
            check_trailers(headers)
            return self._data_arrived(stream, b"", ended=True)
        except StreamError as fault:
            if fault.code != ErrorCode.REFUSED_STREAM:
                self._charge(_RESET_COST)
            return self._reset_by(stream_id, fault.code)

    def _begin(
        self,
        stream_id: int,
        headers: list[tuple[bytes, bytes]],
        too_large: StreamError | None,
        depends_on: int | None,
        *,
        ended: bool,
    ) -> Event:
        """Begin a stream. Raises: StreamError."""
        self.last_stream_id = stream_id
        if too_large is not None:
            raise too_large
        if self._leaving or len(self._streams) >= STREAMS_MAX:
            raise StreamError(ErrorCode.REFUSED_STREAM, "no more streams")
        if depends_on == stream_id:
            raise StreamError(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
        found = check_request(headers)
        content_left = None
        if b"content-length" in found:
            content_left = _length(found[b"content-length"])
            if ended and content_left:
                raise StreamError(
                    ErrorCode.PROTOCOL_ERROR, "content-length differs from the size of the data"
                )
        stream = self.sending.open(stream_id, STREAM_WINDOW)
        if self._credit < _CREDIT_MAX:
            self._credit += _CREDIT_EARNED
        data = b""
        if ended:
            stream.peer_ended = True
        elif content_left is not None:
            stream.content_left = content_left
        else:
            # The next frame may be all the data of this stream: most calls come so. DATA is kind 0. The
            # windows have room for a frame, whenever one begins.
            buffer, at = self._buffer, self._at
            begin = at + HEAD_SIZE
            if len(buffer) >= begin:
                word, flags, number = _HEAD.unpack_from(buffer, at)
                size = word >> 8
                end = begin + size
                if (
                    number == stream_id
                    and flags == _END_STREAM
                    and not word & 0xFF
                    and size <= FRAME_SIZE_MAX
                    and len(buffer) >= end
                ):
                    self._at = end
                    self._room -= size
                    if self._room < CONNECTION_WINDOW // 2:
                        self._reopen()
                    stream.peer_ended = ended = True
                    data = buffer[begin:end]
        return _new_tuple(StreamHeaders, (stream_id, found, ended, data))

    def _reopen(self) -> None:
        """Open the connection's window again. Raises: Http2Error if there was more than it allowed."""
        if self._room < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")
        self.sending.out.append(window_update(0, CONNECTION_WINDOW - self._room))
        self._room = CONNECTION_WINDOW

    def _on_data(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        size = len(payload)
        self._room -= size
        if self._room < CONNECTION_WINDOW // 2:
            self._reopen()
        data = unpadded(payload, flags)
        stream = self._streams.get(stream_id) or self._known(stream_id)
        if stream is None or stream.peer_ended:
            self._charge(1)
            return self._reset_by(stream_id, ErrorCode.STREAM_CLOSED)
        stream.room -= size
        if stream.room < 0:
            return self._reset_by(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        ended = bool(flags & _END_STREAM)
        if len(data) >= _WORTH_SIZE:
            self._credit = min(self._credit + _CREDIT_EARNED, _CREDIT_MAX)
        elif not ended:
            self._charge(1)
        if ended and stream.content_left is None:
            stream.peer_ended = True
            return StreamData(stream_id, data, True)
        if not ended and stream.room < STREAM_WINDOW // 2:
            self.sending.out.append(window_update(stream_id, STREAM_WINDOW - stream.room))
            stream.room = STREAM_WINDOW
        try:
            return self._data_arrived(stream, data, ended=ended)
        except StreamError as error:
            return self._reset_by(stream_id, error.code)

    def _data_arrived(self, stream: Stream, data: bytes, *, ended: bool) -> Event | None:
        """Process data of a stream. Raises: StreamError."""
        if stream.content_left is not None:
            stream.content_left -= len(data)
            if stream.content_left < 0 or (ended and stream.content_left):
                raise StreamError(
                    ErrorCode.PROTOCOL_ERROR, "content-length differs from the size of the data"
                )
        stream.peer_ended = ended
        if not data and not ended:
            return None
        return StreamData(stream.stream_id, data, ended)

    def _known(self, stream_id: int) -> Stream | None:
        """Return the stream, None if it is closed. Raises: Http2Error if it never existed."""
        if stream_id == 0 or stream_id > self.last_stream_id or stream_id % 2 == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame on the idle stream {stream_id}")
        return self._streams.get(stream_id)

    def _reset_by(self, stream_id: int, code: ErrorCode) -> Event | None:
        """Reset a stream because of the peer's error; returns an event if the owner knows the stream."""
        unsent = self.sending.reset(stream_id, code)
        return None if unsent is None else StreamGone(stream_id, unsent)

    # ------------------------------------------------------------ other frames

    def _on_priority(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if stream_id == 0:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        self._charge(1)
        if len(payload) != 5:
            return self._reset_by(stream_id, ErrorCode.FRAME_SIZE_ERROR)
        if int.from_bytes(payload[:4], "big") & WINDOW_MAX == stream_id:
            return self._reset_by(stream_id, ErrorCode.PROTOCOL_ERROR)
        return None

    def _on_rst_stream(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        stream = self._known(stream_id)
        self._charge(_RESET_COST)
        return StreamGone(stream_id, None if stream is None else self.sending.drop(stream))

    def _on_settings(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & Flag.ACK and payload):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & Flag.ACK:
            self._charge(1)
            return None
        self._charge(_SETTINGS_COST)
        # Before what the new values let go: h2spec reads them in this order.
        self.sending.out.append(head(0, FrameType.SETTINGS, Flag.ACK, 0))
        # The last value of each counts.
        for name, value in dict(struct.iter_unpack(">HI", payload)).items():
            self._set(name, value)
        return None

    def _set(self, name: int, value: int) -> None:
        if name == Setting.ENABLE_PUSH and value > 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == Setting.MAX_FRAME_SIZE and not FRAME_SIZE_MAX <= value < 1 << 24:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
        if name == Setting.INITIAL_WINDOW_SIZE:
            self.sending.set_stream_window(value)

    def _on_push_promise(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "clients promise nothing")

    def _on_ping(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong size")
        self._charge(1)
        if not flags & Flag.ACK:
            self.sending.out.append(head(8, FrameType.PING, Flag.ACK, 0) + payload)
        return None

    def _on_goaway(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
        self._charge(1)
        return None

    def _on_window_update(self, stream_id: int, flags: int, payload: bytes) -> Event | None:
        if len(payload) != 4:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        increment = int.from_bytes(payload, "big") & WINDOW_MAX
        self._charge(1)
        if stream_id == 0:
            self.sending.open_window(increment)
            return None
        stream = self._known(stream_id)
        if stream is None:
            return None
        fault = self.sending.open_window_of(stream, increment)
        return None if fault is None else self._reset_by(stream_id, fault)

    # ------------------------------------------------------------ output

    def take(self) -> list[Buffer]:
        """Return what is to be written now."""
        sending = self.sending
        out, sending.out = sending.out, []
        return out

    def leave(self) -> None:
        """Say goodbye: streams continue, new ones are refused."""
        self._leaving = True
        self.sending.out.append(goaway(self.last_stream_id, ErrorCode.NO_ERROR, "the broker stops"))


_FrameHandler = Callable[[Http2Server, int, int, bytes], Event | None]
# By kind. Not in the class, whose body knows no methods yet where it is compiled.
_HANDLERS: Final[tuple[_FrameHandler, ...]] = (
    Http2Server._on_data,
    Http2Server._on_headers,
    Http2Server._on_priority,
    Http2Server._on_rst_stream,
    Http2Server._on_settings,
    Http2Server._on_push_promise,
    Http2Server._on_ping,
    Http2Server._on_goaway,
    Http2Server._on_window_update,
    Http2Server._on_continuation,
)


def _length(text: bytes) -> int:
    """Parse a content-length. Raises: StreamError."""
    if not text.isdigit() or len(text) > 12:
        raise StreamError(ErrorCode.PROTOCOL_ERROR, "content-length is not a number")
    return int(text)
