"""HeldRequest, Woken: what pulls and pops that wait for a message have in common.

Who is woken is run in the next turn of the event loop, or in one of the following when they are many; not
before its peer has read what it was sent, and not at all when its connection has ended. Owners: LongPolling
and PopPolling, each with a Woken of its own.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.peer import TURN_MS, Peer
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

_LOW_WORD = 0xFFFF_FFFF


class HeldRequest:
    """One request that waits: what it lets through, until when (monotonic ms)."""

    __slots__ = ("again", "codes", "connection", "deadline_ms", "properties")

    def __init__(
        self,
        again: Callable[[], None],
        connection: Peer,
        matches: EntryFilter | None,
        deadline_ms: int,
        properties: Callable[[bytes], bool] | None = None,
    ) -> None:
        """again: answers it when it is done waiting, or lets it wait again; matches: the tags codes that
        wake it; properties: what the message's properties must pass."""
        self.again = again
        self.connection = connection
        codes = matches.codes if matches is not None else None
        self.codes = None if codes is None else frozenset(code & _LOW_WORD for code in codes)
        self.deadline_ms = deadline_ms
        self.properties = properties

    def wants(self, tags_code: int, properties: bytes) -> bool:
        """Whether a new message concerns it; tags_code as the queue's entry holds it."""
        if self.codes is not None and tags_code & _LOW_WORD not in self.codes:
            return False
        return self.properties is None or self.properties(properties)


Held = TypeVar("Held", bound=HeldRequest)


class Woken(Generic[Held]):
    """The requests that were woken and have not been run yet. kind: what they are, for the log."""

    kind = "request"

    def __init__(
        self, clock: Clock, call_soon: Callable[[Callable[[], None]], object] | None
    ) -> None:
        """call_soon: runs a function in the next turn of the event loop; None: they wait for run_ready."""
        self._clock = clock
        self._ready: deque[Held] = deque()
        self._call_soon = call_soon

    def run_soon(self, held: Held) -> None:
        """Run it in the next turn of the loop."""
        if not self._ready and self._call_soon is not None:
            self._call_soon(self.run_ready)
        self._ready.append(held)

    def run_ready(self) -> None:
        """Run the requests that were woken: all of a few, else those that a turn of the loop has room for."""
        began_ms = self._clock.monotonic_ms()
        for _ in range(len(self._ready)):
            held = self._ready.popleft()
            if not held.connection.closed:
                held.connection.when_read(partial(self._run, held))
            if self._call_soon is not None and self._clock.monotonic_ms() - began_ms >= TURN_MS:
                break
        if self._ready and self._call_soon is not None:
            self._call_soon(self.run_ready)

    def run_all(self) -> None:
        """Run every request that was woken, however long it takes: the broker stops."""
        self._call_soon = None
        self.run_ready()

    def _run(self, held: Held) -> None:
        try:
            held.again()
        except Exception:
            log.exception(
                "a held %s failed when it was woken peer=%s", self.kind, held.connection.address
            )
