"""Slices: work of many small pieces, of which each turn of the event loop does what fits into TURN_MS.

What one client sets off for many others (wake them, tell them, forget them) holds up nobody this way. The
pieces are done in the order in which they came.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.peer import TURN_MS

Piece = TypeVar("Piece")
CallSoon = Callable[[Callable[[], None]], object]


class Slices(Generic[Piece]):
    """The pieces of one kind that are still to be done."""

    def __init__(
        self, clock: Clock, call_soon: CallSoon | None, do: Callable[[Piece], None]
    ) -> None:
        """call_soon: runs a function in the next turn of the loop; None: pieces are done at once.
        do: does one; what it raises is the caller's or the loop's, and the next one goes on."""
        self._clock = clock
        self._call_soon = call_soon
        self._do = do
        self._pieces: deque[Piece] = deque()
        self._is_due = False

    def add(self, pieces: Iterable[Piece]) -> None:
        """Do these, in the next turn of the loop and the following ones."""
        self._pieces.extend(pieces)
        if self._call_soon is None:
            self.finish()
        elif self._pieces:
            self._run_soon(self._call_soon)

    def _run_soon(self, call_soon: CallSoon) -> None:
        if not self._is_due:
            self._is_due = True
            call_soon(self._run)

    def _run(self) -> None:
        assert self._call_soon is not None
        self._is_due = False
        began_ms = self._clock.monotonic_ms()
        try:
            for _ in range(len(self._pieces)):
                if not self._pieces or self._clock.monotonic_ms() - began_ms >= TURN_MS:
                    break
                self._do(self._pieces.popleft())
        finally:
            if self._pieces:
                self._run_soon(self._call_soon)

    def finish(self) -> None:
        """Do all that is left, however long it takes."""
        while self._pieces:
            self._do(self._pieces.popleft())
