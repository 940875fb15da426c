"""Outbox: data that one connection has still to send.

1. Frames are gathered, and leave in one write: those of a read that is worked on (`corked`) at its end,
   others soon, with the rest of this turn's frames. Those that are small together are joined, others are
   handed over as they are.
2. Data for a slow TLS peer waits unencrypted, without a copy; it is encrypted as the peer reads.
3. `unread` is the memory used by unread data: bytes that are mapped from files do not count, but what was
   encrypted of them does.
Owner: its Connection, which tells it when the peer stops reading and when it reads again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from pocketmq.remoting.transport.tls import TlsLayer

Buffer = bytes | bytearray | memoryview

# Frames that together are smaller than this are joined: one copy is cheaper than many vectors.
JOIN_SIZE_MAX = 65_536
# A client's requests leave in pieces of this size, so that the broker works while the client does: about
# twenty small messages, a quarter of a millisecond of either's work.
PIECE_SIZE = 8_192
# Bytes handed to the operating system and to asyncio before the peer counts as one that does not read.
BUFFER_HIGH = 1_048_576
# Bytes encrypted for a TLS peer ahead of its reading, and how many at a time.
_TLS_BUFFER_HIGH = 131_072
_TLS_PIECE = 65_536


class Outbox:
    """Attributes: size (collected bytes), is_blocked (the peer does not read), corked (see invariant 1),
    is_over (nothing more is taken), last_write_ms (monotonic).
    """

    def __init__(
        self, count_unread: Callable[[int], None], monotonic_ms: Callable[[], int]
    ) -> None:
        """count_unread: called with the bytes waiting in memory while the peer does not read."""
        self.size = 0
        self.is_blocked = self.corked = self.is_over = False
        self.last_write_ms = 0
        self._is_scheduled = False
        self._monotonic_ms = monotonic_ms
        self._count_unread = count_unread
        self._gathered: list[Buffer] = []
        # Bytes of buffers that are mapped from files: gathered, and handed over since the peer last read.
        self._mapped_gathered = self._mapped_size = 0
        # Plain text that waits for a TLS peer, and whether it is mapped from a file.
        self._backlog: deque[tuple[Buffer, bool]] = deque()
        self._backlog_size = self._backlog_mapped = 0
        self._is_ending = False
        self._transport: asyncio.Transport | None = None
        self._tls: TlsLayer | None = None

    def open(self, transport: asyncio.Transport) -> None:
        """Set the transport."""
        transport.set_write_buffer_limits(high=BUFFER_HIGH)
        self._transport = transport
        self.last_write_ms = self._monotonic_ms()

    def encrypt_by(self, tls: TlsLayer) -> None:
        """Encrypt everything from now on."""
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=_TLS_BUFFER_HIGH)
        self._tls = tls

    def add(self, frame: bytes) -> None:
        """Collect a whole frame; an empty one is ignored."""
        if frame:
            self._gathered.append(frame)
            self.size += len(frame)

    def add_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Collect the buffers of one frame, without a copy."""
        for buffer in buffers:
            self._gathered.append(buffer)
            self.size += len(buffer)
            if isinstance(buffer, memoryview):
                self._mapped_gathered += len(buffer)

    def send(self, frame: bytes | Sequence[Buffer]) -> None:
        """Collect one frame, which leaves soon; dropped if the connection is over."""
        if self.is_over:
            return
        if isinstance(frame, bytes):
            self.add(frame)
        else:
            self.add_buffers(frame)
        if self.corked:
            return
        if self.size > BUFFER_HIGH:
            self.flush()
        elif not self._is_scheduled:
            self._flush_soon()

    def post(self, frame: bytes, *, alone: bool) -> None:
        """Like `send`. One that is alone is written at once; many in one turn of the loop in several pieces,
        so that the peer can begin.
        """
        self._gathered.append(frame)
        self.size += len(frame)
        if self.corked:
            return
        if self.size > PIECE_SIZE or (alone and not self._is_scheduled):
            self.flush()
        elif not self._is_scheduled:
            self._flush_soon()

    def _flush_soon(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self, now_ms: int = 0) -> None:
        """Write what was collected. now_ms: monotonic, 0: unknown."""
        gathered, transport = self._gathered, self._transport
        if not gathered:
            return
        size, self.size = self.size, 0
        self._gathered = []
        mapped, self._mapped_gathered = self._mapped_gathered, 0
        if transport is None or transport.is_closing():
            return
        self.last_write_ms = now_ms or self._monotonic_ms()
        self._mapped_size = self._mapped_size + mapped if self.is_blocked else mapped
        if self._tls is not None:
            self._backlog.extend((each, isinstance(each, memoryview)) for each in gathered)
            self._backlog_size += size
            self._backlog_mapped += mapped
            self._encrypt()
            return
        if len(gathered) == 1:
            transport.write(gathered[0])
        elif size <= JOIN_SIZE_MAX:
            transport.write(b"".join(gathered))
        else:
            transport.writelines(gathered)
        if self.is_blocked:
            self._note_unread()

    def block(self) -> None:
        """Note that the peer does not read."""
        self.is_blocked = True
        self._note_unread()

    def unblock(self) -> None:
        """Note that the peer reads again; is_blocked says whether that sufficed for the encrypted data."""
        self.is_blocked = False
        if self._backlog:
            self._encrypt()
        if not self.is_blocked:
            self._mapped_size = 0
            self._count_unread(0)

    def end(self) -> None:
        """Close the transport after everything written has left."""
        self.is_over = self._is_ending = True
        if self._transport is not None and not self._backlog:
            self._transport.close()

    def clear(self) -> None:
        """Drop everything: the connection is closed."""
        # The counter leads back to the connection, and a cycle would wait for the garbage collector.
        self._count_unread = _count_nothing
        self.is_over = True
        self._gathered.clear()
        self._backlog.clear()
        self.size = self._backlog_size = self._backlog_mapped = 0

    def _note_unread(self) -> None:
        if self._transport is None:
            return
        size = self._transport.get_write_buffer_size()
        if self._tls is None:
            size = max(0, size - self._mapped_size)
        self._count_unread(size + self._backlog_size - self._backlog_mapped)

    def _encrypt(self) -> None:
        """Encrypt and write what a TLS peer has room for (invariant 2)."""
        assert self._tls is not None
        assert self._transport is not None
        while self._backlog and not self.is_blocked:
            self._transport.write(self._tls.encrypt(self._piece()))
        if self.is_blocked:
            self._note_unread()
        if self._is_ending and not self._backlog:
            self._transport.close()

    def _piece(self) -> bytes:
        """Return the next bytes of the backlog."""
        backlog, size = self._backlog, 0
        pieces: list[Buffer] = []
        while backlog and size < _TLS_PIECE:
            first, is_mapped = backlog.popleft()
            room = _TLS_PIECE - size
            if len(first) > room:
                view = memoryview(first)
                first = view[:room]
                backlog.appendleft((view[room:], is_mapped))
            pieces.append(first)
            size += len(first)
            if is_mapped:
                self._backlog_mapped -= len(first)
        self._backlog_size -= size
        return b"".join(pieces)


def _count_nothing(size: int) -> None: ...
