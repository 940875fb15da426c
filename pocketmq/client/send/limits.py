"""Sends in flight: how many at once, and until when.

    room = SendLimits(count_max=1_000, size_max=64 MiB)   back-pressure: senders wait for room
    flights.launch(...)                                   one attempt without a task and a timer of its own

1. At most count_max messages with size_max bytes are in flight; a single larger one flies alone.
2. Waiters get room first come, first served.
3. All flights of a producer have the same time-out, so their deadlines are in the order of their starts: one
   timer for the first of them serves all.
4. A flight settles once: by its answer, by the loss of its connection, or at its deadline.
5. From a third of its time on, a flight is looked at several times: whether its broker lives.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pocketmq.remoting.transport.own_requests import Waiter

_SWEEP_SIZE = 2_048
_LOOKS = 6
"""A flight's time has so many parts; between two of them it is looked at."""


class SendLimits:
    """Counts messages in flight (invariants 1 and 2). Owner: one producer."""

    def __init__(self, count_max: int, size_max: int) -> None:
        """size_max in bytes."""
        self.count = 0
        self.size = 0
        self._count_max = count_max
        self._size_max = size_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: list[asyncio.Future[None]] = []

    def take(self, size: int) -> bool:
        """Take room if there is some; return whether there was."""
        if self._waiting or (self.count and not self._fits(size)):
            return False
        self.count += 1
        self.size += size
        return True

    def _fits(self, size: int) -> bool:
        return self.count < self._count_max and self.size + size <= self._size_max

    async def wait(self, size: int) -> None:
        """Wait for room, and take it."""
        if self.take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            else:
                # The next waiters may fit where this one did not.
                self._admit()
            raise

    def give(self, size: int) -> None:
        """Return room."""
        self.count -= 1
        self.size -= size
        if self._waiting:
            # May admit no waiter: those cancelled in this turn are still queued.
            self._admit()
        if self._idle and not self.count:
            idle, self._idle = self._idle, []
            for each in idle:
                if not each.done():
                    each.set_result(None)

    def _admit(self) -> None:
        waiting = self._waiting
        while waiting:
            size, turn = waiting[0]
            if turn.done():
                waiting.popleft()
                continue
            if self.count and not self._fits(size):
                return
            waiting.popleft()
            self.count += 1
            self.size += size
            turn.set_result(None)

    async def empty(self) -> None:
        """Wait until nothing is in flight."""
        while self.count or self._waiting:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(done)
            await done


class OpenConnection(Protocol):
    """The part of remoting's Connection that a flight needs."""

    def take_opaque(self) -> int: ...

    def post(self, opaque: int, frame: bytes, waiter: Waiter) -> None: ...

    def unanswered(self, opaque: int, waited_ms: float) -> None: ...

    def in_vain(self, waited_ms: float) -> None: ...

    @property
    def last_read_ms(self) -> int: ...


class ExpiringFlight(Protocol):
    """A flight as its deadline sees it."""

    connection: OpenConnection
    opaque: int
    began_ms: int
    deadline_ms: int
    settled: bool

    def expire(self) -> None: ...

    def look(self, waited_ms: int) -> None:
        """See whether the broker lives; it may settle the flight."""
        ...


class Deadlines:
    """Expires flights that get no answer (invariant 3). Owner: one producer."""

    def __init__(
        self,
        monotonic_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], object]], None],
    ) -> None:
        """call_later: (delay in ms, function)."""
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._flights: deque[ExpiringFlight] = deque()
        self._sweep_at = _SWEEP_SIZE
        self._armed = False

    def __len__(self) -> int:
        """Return the number of flights kept, including settled ones behind an unsettled one."""
        return len(self._flights)

    def add(self, flight: ExpiringFlight) -> None:
        flights = self._flights
        while flights and flights[0].settled:
            flights.popleft()
        flights.append(flight)
        if len(flights) > self._sweep_at:
            # A deaf broker's flight stands in front: what settled behind it need not wait for it.
            self._flights = deque(each for each in flights if not each.settled)
            self._sweep_at = max(_SWEEP_SIZE, 2 * len(self._flights))
        if not self._armed:
            self._arm((flight.deadline_ms - flight.began_ms) // _LOOKS * 2)

    def _arm(self, delay_ms: float) -> None:
        self._armed = True
        self._call_later(max(1, delay_ms), self._sweep)

    def _sweep(self) -> None:
        self._armed = False
        flights = self._flights
        now = self._monotonic_ms()
        while flights:
            first = flights[0]
            if not first.settled:
                if first.deadline_ms > now:
                    self._look(first, now)
                    return
                first.connection.unanswered(first.opaque, now - first.began_ms)
                first.expire()
            flights.popleft()

    def _look(self, first: ExpiringFlight, now_ms: int) -> None:
        """Apply invariant 5, and come back when the first flight is due for it, or for its end."""
        part_ms = (first.deadline_ms - first.began_ms) // _LOOKS
        old = [each for each in self._flights if each.began_ms <= now_ms - 2 * part_ms]
        for each in old:
            if not each.settled:
                each.look(now_ms - each.began_ms)
        next_ms = now_ms + part_ms if old else first.began_ms + 2 * part_ms
        self._arm(min(first.deadline_ms, next_ms) - now_ms)
