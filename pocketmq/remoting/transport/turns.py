"""Turns: work in many small pieces, done in each turn of the event loop as far as TURN_MS allows.

So work that one client causes for many others (wake, notify, remove them) blocks no client. The pieces are
done in the order in which they were added.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import TURN_MS

Piece = TypeVar("Piece")
CallSoon = Callable[[Callable[[], None]], object]


class Turns(Generic[Piece]):
    """The pending pieces of one kind."""

    def __init__(
        self, clock: Clock, call_soon: CallSoon | None, do: Callable[[Piece], None]
    ) -> None:
        """call_soon: runs a function in the next turn of the loop; None: pieces are done at once. do: does
        one piece; an exception propagates to the caller or the loop, and the next piece follows.
        """
        self._clock = clock
        self._call_soon = call_soon
        self._do = do
        self._pieces: deque[Piece] = deque()
        self._is_due = False

    def add(self, pieces: Iterable[Piece]) -> None:
        """Do these pieces, in the next turns of the loop."""
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
