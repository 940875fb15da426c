"""A TCP proxy that loses answers: the server has done what it was asked, and the client cannot know."""

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from typing import Self

from tests.kit.rough_proxy import RoughProxy

_DATA, _HEADERS, _END_STREAM = 0, 1, 1
_RESET = b"\0\0\4\3\0"
_INTERNAL_ERROR = b"\0\0\0\2"


class LossyProxy(RoughProxy):
    """Loses each answer of the server with the chance `share`, and then cuts the connection.

    http2: an answer is what ends a stream; else each of RocketMQ's frames is one. host, port: where it
    listens; port 0: any. at_most: so many answers are lost in a row. cuts: False only swallows the answer,
    in HTTP/2 with the rest of its stream. While nothing listens at the target, clients wait.
    """

    def __init__(
        self,
        target: int,
        chance: random.Random,
        share: float,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        at_most: int = 1 << 30,
        http2: bool = False,
    ) -> None:
        super().__init__(target, chance)
        self.share, self.lost = share, 0
        self._host, self._listens_at = host, port
        self.cuts, self.refuses = True, False
        self.at_most, self._in_a_row = at_most, 0
        self._http2 = http2

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self._listens_at)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join a client to the server, once that listens."""
        while not self.refuses:
            try:
                await super().join(reader, writer)
                return
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)

    async def forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
    ) -> None:
        if writer.get_extra_info("peername")[1] == self.target:
            await super().forward(reader, writer, both)
            return
        buffer = bytearray()
        try:
            while data := await reader.read(65_536):
                buffer += data
                for frame in _frames(buffer, http2=self._http2):
                    if not self._loses(frame):
                        writer.write(frame)
                    elif self.cuts:
                        if not self._http2:
                            _reset(writer)
                        return
                    elif self._http2:
                        writer.write(_RESET + frame[5:9] + _INTERNAL_ERROR)
        except OSError:
            pass
        finally:
            for each in both:
                each.transport.abort()

    def _loses(self, frame: bytes) -> bool:
        if self._http2 and not (frame[3] in (_DATA, _HEADERS) and frame[4] & _END_STREAM):
            return False
        if self._in_a_row >= self.at_most or self._chance.random() >= self.share:
            self._in_a_row = 0
            return False
        self._in_a_row += 1
        self.lost += 1
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let a connection end with a reset: the Java client waits for its time where one just ends."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _ended(frame: bytes) -> bytes:
    """Return the frame of HTTP/2 that cancels a frame's stream. Servers here index no header."""
    return b"\0\0\4\3\0" + frame[5:9] + (8).to_bytes(4, "big")


def _frames(buffer: bytearray, *, http2: bool) -> Iterator[bytes]:
    """Take all whole frames from the start of what a server has said."""
    head, bytes_of_size = (9, 3) if http2 else (4, 4)
    while len(buffer) >= head:
        size = head + int.from_bytes(buffer[:bytes_of_size], "big")
        if len(buffer) < size:
            return
        yield bytes(buffer[:size])
        del buffer[:size]
