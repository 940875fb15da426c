"""AdvancingClock: the machine's time plus what a test adds; and an event loop that follows it.

1. Time passes by itself, so that everything behaves as in production until a test advances it.
2. advance() adds to the wall clock: delays, scheduled messages, transaction checks and the invisible time
   of popped messages see that time has passed. Clients stay alive: time-outs of silence (heartbeats,
   locks, idle connections, held pulls) use the monotonic clock, which moves with `silent=True` only.
3. A loop that follows the clock wakes everything that sleeps in it, so nothing waits for real time.
"""

import asyncio
import time
from collections.abc import Callable


class AdvancingClock:
    """A Clock for a broker, and for clients that share its time (option `clock`)."""

    def __init__(self) -> None:
        self._wall_ms = 0
        self._silent_ms = 0
        # Called after each advance with its seconds and `silent`; returns when the servers of this clock
        # have done what became due.
        self.on_advance: list[Callable[[float, bool], None]] = []

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._wall_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._silent_ms

    def advance(
        self,
        seconds: float = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        silent: bool = False,
    ) -> None:
        """Advance time, and return once everything that became due is delivered.

        silent: no client gave a sign of life meanwhile: after 120 s the broker drops them.
        Raises: ValueError if time would go back.
        """
        passed_s = seconds + 60 * minutes + 3600 * hours + 86_400 * days
        if passed_s < 0:
            raise ValueError(
                "time can only be advanced, because a broker cannot run with a "
                "clock that goes back: use a new server"
            )
        self._wall_ms += round(passed_s * 1000)
        if silent:
            self._silent_ms += round(passed_s * 1000)
        for each in list(self.on_advance):
            each(passed_s, silent)


class AdvancingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be set forward: timers that became due fire at once, each once."""

    _advanced_s = 0.0

    def time(self) -> float:
        return super().time() + self._advanced_s

    def advance(self, seconds: float) -> None:
        """Advance the loop's time; call it in the loop's thread."""
        self._advanced_s += seconds
