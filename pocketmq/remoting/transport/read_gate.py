"""ReadGate: whether a connection reads from its peer, and what of that it shares with others (limits.py).

1. While the peer does not read, nothing more is read from it, so the data waiting for it stays bounded.
2. Nothing more is read either while frames wait to be handled, others' half frames come first, or coroutines
   that answer requests keep too much.
Owner: its Connection.
"""

import asyncio

from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.limits import LimitedConnection, SharedLimits
from pocketmq.remoting.transport.outbox import Outbox

# About the bytes that a request takes besides its body while a coroutine answers it.
_KEPT_COST = 4_096


class ReadGate:
    """Attributes: is_busy (what was read waits to be handled), partial_since_ms (0, or since when a frame is
    incomplete)."""

    def __init__(self, outbox: Outbox, shared_limits: SharedLimits | None) -> None:
        self.is_busy = False
        self.partial_since_ms = 0
        self._outbox = outbox
        self._shared_limits = shared_limits
        self._held = False
        self._keeps_too_much = False
        self._kept_size = 0
        self._is_reading = True
        self._transport: asyncio.Transport | None = None

    def open(self, transport: asyncio.Transport) -> None:
        """Set the transport."""
        self._transport = transport

    def close(self) -> None:
        """Leave the transport alone from now on."""
        self._transport = None

    def update(self) -> None:
        """Pause or resume reading from the peer, depending on everything that may block it."""
        wanted = not (self._outbox.is_blocked or self.is_busy or self._held or self._keeps_too_much)
        transport = self._transport
        if wanted == self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def half_frame(self, connection: LimitedConnection, size: int) -> None:
        """Set the size of the unfinished frame; `read_again` follows if others come first."""
        self.partial_since_ms = (self.partial_since_ms or connection.last_read_ms) if size else 0
        if self._shared_limits is not None and not self._shared_limits.half_frame(connection, size):
            self._held = True
            self.update()

    def read_again(self) -> None:
        """Resume reading: there is room for its half frame."""
        self._held = False
        self.update()

    def keep(self, size: int) -> None:
        """Count bytes of requests that coroutines answer."""
        shared_limits = self._shared_limits
        if shared_limits is None:
            return
        shared_limits.kept_size += size
        self._kept_size += size
        keeps_too_much = not shared_limits.may_be_read(self._kept_size)
        if keeps_too_much != self._keeps_too_much:
            self._keeps_too_much = keeps_too_much
            self.update()

    def may_keep(self, command: RemotingCommand) -> bool:
        """Return True if there is room to keep one more request until something else has answered."""
        shared_limits = self._shared_limits
        return shared_limits is None or shared_limits.has_room(self._kept_size, kept_size(command))


def kept_size(command: RemotingCommand) -> int:
    """Return the bytes that a request takes, about."""
    fields = command.ext or {}
    return len(command.body) + sum(map(len, fields.values())) + _KEPT_COST
