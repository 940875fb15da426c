"""Tail: compares the ends of a slave's log and its master's for a common history. No I/O of its own.

The replication protocol compares nothing (wire.py): a slave whose log ends with records that its master never
had would be sent the master's bytes from the middle of other records, unnoticed by either. So a slave checks
before it follows: it can fetch any range of the master's log over a separate connection. The bytes of a log
include position, offset and store time, so if two ranges are equal, so is everything before them.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

WINDOW = 64 << 10
_PROBE = 4 << 10

Fetch = Callable[[int, int], Awaitable[bytes]]


class OwnLog(Protocol):
    """The slave's log, a MessageStore's."""

    @property
    def commit_log_min_position(self) -> int: ...
    @property
    def commit_log_max_position(self) -> int: ...
    def raw(self, position: int, size_max: int) -> memoryview | None: ...
    def boundary_before(self, position: int) -> int: ...


class Ends(NamedTuple):
    """Where a log begins and ends."""

    low: int
    high: int


async def common_end(own: OwnLog, master: Ends, fetch: Fetch) -> int | None:
    """Return where the common history of both logs ends: the slave's own end, or that of an earlier record.

    fetch: (position, size) -> that many bytes of the master's log. Returns: None if the two have nothing in
    common, or nothing that could be compared.
    """
    low = max(own.commit_log_min_position, master.low)
    high = min(own.commit_log_max_position, master.high)
    if high <= low:
        return None
    if await _same(own, max(low, high - WINDOW), high, fetch):
        return high
    # The same before `good`, another one behind `bad`.
    good, bad = low, max(low, high - WINDOW)
    if not await _same(own, low, min(low + _PROBE, high), fetch):
        bad = low
    while bad - good > WINDOW:
        middle = (good + bad) // 2
        if await _same(own, middle, min(middle + _PROBE, bad), fetch):
            good = middle
        else:
            bad = middle
    end = min(bad + WINDOW, high)
    differs = _first_difference(_own(own, good, end), await fetch(good, end - good))
    found = own.boundary_before(good + differs)
    return found if found > low else None


async def _same(own: OwnLog, begin: int, end: int, fetch: Fetch) -> bool:
    return _own(own, begin, end) == await fetch(begin, end - begin)


def _own(own: OwnLog, begin: int, end: int) -> bytes:
    parts = []
    while begin < end:
        piece = own.raw(begin, end - begin)
        assert piece, "the log was cut while it was being read"
        parts.append(piece)
        begin += len(piece)
    return b"".join(parts)


def _first_difference(one: bytes, other: bytes) -> int:
    """
    >>> _first_difference(b"abc", b"abd"), _first_difference(b"ab", b"ab")
    (2, 2)
    """
    for at, (a, b) in enumerate(zip(one, other, strict=True)):
        if a != b:
            return at
    return len(one)
