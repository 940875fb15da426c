"""Time as a value that is handed in, so that tests can turn it.

Wall time (ms since 1970) goes into messages and files; monotonic time decides expiry, so that a jump
of the wall clock neither ends a lock nor fires a timer early.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a part may know of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until a test turns it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance_ms(self, ms: int) -> None:
        """Both clocks go forward by `ms`."""
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump_ms(self, ms: int) -> None:
        """The wall clock alone is set forward or back, as an administrator or NTP does."""
        self._now_ms += ms
