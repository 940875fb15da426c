"""SharedLimits: what the connections of one server use together, and limits for those that use too much.

1. A connection beyond the limit, in all or from one address, is closed as it comes.
2. Half frames: if they are too large together, nothing is read from the younger ones until there is room; the
   oldest is always read, so that one after the other becomes whole. `stalled` returns those that send nothing
   while others wait.
3. Answers that peers do not read: if they are too large together, the connection with the most is aborted.
   Bytes mapped from files do not count, nor what stays below a connection's own buffer.
4. Requests that are kept until something else has answered: a connection has room for a third of what is left
   (`has_room`), a quarter of all if it is alone, so that those that keep much always leave room for another.
   One that keeps twice that quarter, or anything while all keep twice theirs, is not read.
Owner: RemotingServer; its connections report here.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)

# Below that a connection's share is not worth counting: what the operating system hands out at once.
_SIZE_MIN = 65_536


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits for all connections of a server together; 0: any number of connections. Sizes in bytes."""

    count_max: int = 0
    per_address_max: int = 0
    input_size_max: int = 64 << 20
    output_size_max: int = 256 << 20
    kept_size_max: int = 128 << 20


class LimitedConnection(Protocol):
    """The part of a connection that this module needs."""

    last_read_ms: int

    def read_again(self) -> None: ...

    def abort(self) -> None: ...


class SharedLimits:
    """Attributes: limits, count (connections now), refused_count and dropped_count (since the start: not
    accepted, aborted with too much unread), input_size, output_size and kept_size (bytes now).
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.count = self.refused_count = self.dropped_count = 0
        self.input_size = self.output_size = self.kept_size = 0
        self._by_address: Counter[str] = Counter()
        # In the order in which the half frames began.
        self._inputs: dict[LimitedConnection, int] = {}
        self._held: dict[LimitedConnection, None] = {}
        self._outputs: dict[LimitedConnection, int] = {}

    # ------------------------------------------------------------ connections (invariant 1)

    def enter(self, address: str) -> str | None:
        """Count a new connection from an IP address, in any case; return why it cannot stay, if so."""
        limits = self.limits
        self.count += 1
        self._by_address[address] += 1
        if limits.count_max and self.count > limits.count_max:
            self.refused_count += 1
            return f"{limits.count_max} connections are open, which is the limit"
        if limits.per_address_max and self._by_address[address] > limits.per_address_max:
            self.refused_count += 1
            return f"{address} has {limits.per_address_max} open connections, which is the limit"
        return None

    def leave(self, connection: LimitedConnection, address: str) -> None:
        """Remove a closed connection and everything it used."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._held.pop(connection, None)
        self.half_frame(connection, 0)
        self.unread(connection, 0)

    # ------------------------------------------------------------ half frames (invariant 2)

    def half_frame(self, connection: LimitedConnection, size: int) -> bool:
        """Set the size of a connection's unfinished frame; False: stop reading until `read_again`."""
        inputs = self._inputs
        if size < _SIZE_MIN:
            if connection in inputs:
                self.input_size -= inputs.pop(connection)
                self._let_read()
            return True
        self.input_size += size - inputs.get(connection, 0)
        inputs[connection] = size
        if self.input_size <= self.limits.input_size_max or next(iter(inputs)) is connection:
            return True
        self._held[connection] = None
        return False

    def _let_read(self) -> None:
        while self._held:
            oldest = next(iter(self._inputs))
            has_room = self.input_size <= self.limits.input_size_max
            following = oldest if oldest in self._held else next(iter(self._held))
            if not has_room and following is not oldest:
                return
            del self._held[following]
            following.read_again()
            if not has_room:
                return

    def stalled(self, now_ms: int, silent_ms: int) -> list[LimitedConnection]:
        """Return the connections whose half frames block others, and that have been silent for too long."""
        if not self._held:
            return []
        return [
            each
            for each in self._inputs
            if each not in self._held and now_ms - each.last_read_ms > silent_ms
        ]

    # ------------------------------------------------------------ answers (invariant 3)

    def unread(self, connection: LimitedConnection, size: int) -> None:
        """Set the bytes that wait for the peer to read them; it is aborted if all have too much."""
        outputs = self._outputs
        self.output_size += size - outputs.pop(connection, 0)
        if not size:
            return
        outputs[connection] = size
        while self.output_size > self.limits.output_size_max:
            largest = max(outputs, key=outputs.__getitem__)
            self.output_size -= outputs.pop(largest)
            self.dropped_count += 1
            log.warning(
                "connection closed: peer=%s has %d unread bytes, all connections together %d, "
                "which is too many",
                largest,
                size,
                self.output_size,
            )
            largest.abort()

    # ------------------------------------------------------------ requests that are kept (invariant 4)

    def has_room(self, kept: int, more: int) -> bool:
        """Return True if a connection that keeps so many bytes may keep `more`."""
        left = self.limits.kept_size_max - self.kept_size - more
        return (kept + more) * 3 <= left

    def may_be_read(self, kept: int) -> bool:
        """Return True if a connection that keeps so many bytes is read."""
        size_max = self.limits.kept_size_max
        return kept <= size_max // 2 and (not kept or self.kept_size <= size_max * 2)
