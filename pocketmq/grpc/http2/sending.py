"""StreamSender: the answers of one HTTP/2 connection, within the peer's windows.

1. Data that does not fit waits in its stream, in order; streams that wait for the connection's window take
   turns, a frame each.
2. A stream exists from its headers until both sides have finished it.
Owner: Http2Server.
"""

import struct
from collections import deque

from pocketmq.grpc.http2.frames import (
    FRAME_SIZE_MAX,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
    Flag,
    FrameType,
    Http2Error,
    head,
    rst_stream,
)

Buffer = bytes | bytearray | memoryview
_ANSWER_FLAGS = Flag.END_HEADERS
_TRAILER_FLAGS = Flag.END_HEADERS | Flag.END_STREAM


class Form:
    """The constant blocks of an answer, and what stands before and behind its data in one piece each."""

    def __init__(self, headers: bytes, trailers: bytes) -> None:
        self.headers, self.trailers = headers, trailers
        before = struct.Struct(f">IBI{len(headers)}sIBI").pack
        behind = struct.Struct(f">IBI{len(trailers)}s").pack
        word, last_word = (len(each) << 8 | FrameType.HEADERS for each in (headers, trailers))
        flags, last_flags = int(_ANSWER_FLAGS), int(_TRAILER_FLAGS)

        def pieces(stream_id: int, data: Buffer) -> tuple[Buffer, ...]:
            """Return the frames of a whole answer, whose data fits into one."""
            return (
                before(word, flags, stream_id, headers, len(data) << 8, 0, stream_id),
                data,
                behind(last_word, last_flags, stream_id, trailers),
            )

        self.pieces = pieces


class Stream:
    """window: what we may send; room: what the peer may send. ending: the trailers, once everything is
    queued. unsent: bytes in the queue. content_left: of the content-length, None without one.
    """

    __slots__ = (
        "content_left",
        "ending",
        "peer_ended",
        "queue",
        "room",
        "stream_id",
        "unsent",
        "window",
    )

    def __init__(self, stream_id: int, window: int, room: int) -> None:
        self.stream_id = stream_id
        self.window = window
        self.room = room
        self.peer_ended = False
        # Few streams have to wait.
        self.queue: deque[Buffer] | None = None
        self.unsent = 0
        self.ending: bytes | None = None
        self.content_left: int | None = None


class StreamSender:
    """Attributes: streams (the open ones), out (what is to be written), unsent (bytes waiting in all
    streams), sent_frames (data frames so far), late (streams that have ended after their answer had waited
    for a window; the reader empties it).
    """

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.out: list[Buffer] = []
        self.unsent = 0
        self.sent_frames = 0
        self.late: list[int] = []
        self._window = WINDOW_DEFAULT
        self._stream_window = WINDOW_DEFAULT
        # Streams that wait for the connection's window, in turn.
        self._waiting: dict[Stream, None] = {}

    # ------------------------------------------------------------ streams

    def open(self, stream_id: int, room: int) -> Stream:
        """Add a stream."""
        stream = self.streams[stream_id] = Stream(stream_id, self._stream_window, room)
        return stream

    def drop(self, stream: Stream) -> int:
        """Remove a stream. Returns: the number of unsent bytes."""
        del self.streams[stream.stream_id]
        self._waiting.pop(stream, None)
        self.unsent -= stream.unsent
        return stream.unsent

    def reset(self, stream_id: int, code: ErrorCode) -> int | None:
        """Reset a stream. Returns: the number of unsent bytes; None if it was closed already."""
        self.out.append(rst_stream(stream_id, code))
        stream = self.streams.get(stream_id)
        return None if stream is None else self.drop(stream)

    # ------------------------------------------------------------ windows

    def open_window(self, increment: int) -> None:
        """Enlarge the connection's window. Raises: Http2Error."""
        if not increment:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        self._window += increment
        if self._window > WINDOW_MAX:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window over 31 bits")
        while self._waiting and self._window > 0:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            self._pump(stream, frames_max=1)

    def open_window_of(self, stream: Stream, increment: int) -> ErrorCode | None:
        """Enlarge a stream's window. Returns: why the stream must be reset, if so."""
        stream.window += increment
        if not increment:
            return ErrorCode.PROTOCOL_ERROR
        if stream.window > WINDOW_MAX:
            return ErrorCode.FLOW_CONTROL_ERROR
        if stream.queue:
            self._pump(stream)
        return None

    def set_stream_window(self, size: int) -> None:
        """Set the initial window of every stream, including open ones. Raises: Http2Error."""
        if size > WINDOW_MAX:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window over 31 bits")
        change, self._stream_window = size - self._stream_window, size
        for stream in list(self.streams.values()):
            stream.window += change
            if stream.window > WINDOW_MAX:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window over 31 bits")
            if stream.queue:
                self._pump(stream)

    # ------------------------------------------------------------ answers

    def respond(self, stream_id: int, block: bytes) -> None:
        """Send the headers of an answer; on a closed stream this and what follows is dropped."""
        if stream_id in self.streams:
            self.out.append(head(len(block), FrameType.HEADERS, _ANSWER_FLAGS, stream_id) + block)

    def send(self, stream_id: int, data: Buffer) -> None:
        """Send data of an answer."""
        stream = self.streams.get(stream_id)
        if stream is None or not data:
            return
        if stream.queue is None:
            stream.queue = deque()
        stream.queue.append(data)
        stream.unsent += len(data)
        self.unsent += len(data)
        self._pump(stream)

    def finish(self, stream_id: int, block: bytes) -> None:
        """Send the trailers, which end the stream."""
        stream = self.streams.get(stream_id)
        if stream is None or stream.ending is not None:
            return
        stream.ending = block
        if not stream.queue:
            self._finish(stream)

    def answer(self, stream_id: int, form: Form, data: bytes) -> None:
        """Do all three at once, as nearly all calls need."""
        stream, size = self.streams.get(stream_id), len(data)
        if stream is None:
            return
        window = self._window
        if not stream.peer_ended or size > window or size > stream.window or size > FRAME_SIZE_MAX:
            self.respond(stream_id, form.headers)
            self.send(stream_id, data)
            self.finish(stream_id, form.trailers)
            return
        self._window = window - size
        self.sent_frames += 1
        self.out += form.pieces(stream_id, data)
        del self.streams[stream_id]

    def _finish(self, stream: Stream) -> None:
        block = stream.ending or b""
        self.out.append(
            head(len(block), FrameType.HEADERS, _TRAILER_FLAGS, stream.stream_id) + block
        )
        if not stream.peer_ended:
            # The answer is whole, and the rest of the request is not wanted.
            self.out.append(rst_stream(stream.stream_id, ErrorCode.NO_ERROR))
        self.drop(stream)

    def _pump(self, stream: Stream, frames_max: int = 1 << 30) -> None:
        """Send what the windows allow; frames_max: before other streams get their turn."""
        queue = stream.queue or deque()
        while queue and frames_max:
            size = min(stream.window, self._window, FRAME_SIZE_MAX, stream.unsent)
            if size <= 0:
                break
            frames_max -= 1
            self.out.append(head(size, FrameType.DATA, 0, stream.stream_id))
            self._cut(queue, size)
            stream.window -= size
            stream.unsent -= size
            self._window -= size
            self.unsent -= size
            self.sent_frames += 1
        if queue:
            if stream.window > 0:
                self._waiting[stream] = None
        elif stream.ending is not None:
            self.late.append(stream.stream_id)
            self._finish(stream)

    def _cut(self, queue: "deque[Buffer]", size: int) -> None:
        """Move `size` bytes from a queue to the output."""
        while size:
            data = queue.popleft()
            if len(data) > size:
                view = memoryview(data)
                queue.appendleft(view[size:])
                data = view[:size]
            size -= len(data)
            self.out.append(data)
