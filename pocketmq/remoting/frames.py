"""Framing: bytes in, whole frames out.

    int32 total     bytes that follow
    int32 mark      top byte: header encoding; low 24 bits: header length
    header, body

1. A frame is at most `frame_size_max` bytes, the four length bytes included (wire.md 1.1).
2. A length beyond that, or too small for a mark, ends the connection: nothing is buffered for it.
"""

import struct

from pocketmq.remoting.errors import FrameError, FrameTooLarge

FRAME_SIZE_MAX = 16_777_216
_SIZE = struct.Struct(">I").unpack_from
# A read is looked at for frames of one size from here on, if these are small.
_ALIKE_SIZE_MIN, _ALIKE_MAX = 2_048, 8_192


class FrameDecoder:
    """Cuts a stream into frames (without their length words).

    A chunk that holds only whole frames is sliced directly; only a partial frame is buffered.
    """

    __slots__ = ("_frame_size_max", "_wanted", "buffer")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self.buffer = bytearray()
        self._wanted = 4  # bytes that the buffer must hold before it is worth looking at

    @property
    def pending(self) -> int:
        """Return the size of the unfinished frame so far, bytes."""
        return len(self.buffer)

    @property
    def rest(self) -> bytes:
        """Return the unfinished frame so far."""
        return bytes(self.buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that `data` completes, in order.

        Raises: FrameTooLarge, FrameError; the frames before the bad one are lost with the connection.
        """
        buffer = self.buffer
        size = len(data)
        if not buffer and 8 <= size <= self._frame_size_max and _SIZE(data)[0] == size - 4:
            # One whole frame, as a client sends that waits for each answer.
            return [data[4:]]
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return []
            data = bytes(buffer)
            size = len(data)
            buffer.clear()
        frames: list[bytes] = []
        at = 0
        if size >= _ALIKE_SIZE_MIN:
            # Reads of many small frames mostly bring frames of one size.
            word, step = data[:4], 4 + _SIZE(data)[0]
            count = size // step if 8 <= step <= min(_ALIKE_MAX, self._frame_size_max) else 0
            end_of_alike = count * step
            if [data[head : head + 4] for head in range(0, end_of_alike, step)] == [word] * count:
                frames = [data[body : body + step - 4] for body in range(4, end_of_alike, step)]
                at = end_of_alike
        while size - at >= 4:
            start = at + 4
            end: int = start + _SIZE(data, at)[0]
            if end - at > self._frame_size_max:
                raise FrameTooLarge(end - at, self._frame_size_max)
            if end - start < 4:
                raise FrameError(f"a frame of {end - start} bytes has no room for a header")
            if end > size:
                self._wanted = end - at
                break
            frames.append(data[start:end])
            at = end
        else:
            self._wanted = 4
        if at < size:
            buffer += data[at:] if at else data
        return frames
