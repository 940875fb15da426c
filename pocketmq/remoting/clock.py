"""Time as an injected value, so that tests can control it.

Wall time (ms since 1970) goes into messages and files; monotonic time decides expiry, so that a jump of the
wall clock neither ends a lock nor fires a timer early.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time for all parts."""

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back; only differences are meaningful."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance_ms(self, ms: int) -> None:
        """Advance both clocks by `ms`."""
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump_ms(self, ms: int) -> None:
        """Set only the wall clock forward or back, as an administrator or NTP does."""
        self._now_ms += ms
