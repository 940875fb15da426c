"""HeldRequest, Woken: what pulls and pops that wait for a message have in common.

Who is woken is run in the next turn of the event loop, all of that turn together, and not at all when its
connection has ended. Owners: LongPolling and PopPolling, each with a Woken of its own.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from pocketmq.remoting.connection import Connection
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

_LOW_WORD = 0xFFFF_FFFF


class HeldRequest:
    """One request that waits: what it lets through, until when (monotonic ms)."""

    __slots__ = ("again", "codes", "connection", "deadline_ms", "properties")

    def __init__(
        self,
        again: Callable[[], None],
        connection: Connection,
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

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None) -> None:
        """call_soon: runs a function in the next turn of the event loop; None: they wait for run_ready."""
        self._ready: list[Held] = []
        self._call_soon = call_soon

    def run_soon(self, held: Held) -> None:
        """Run it in the next turn of the loop."""
        if not self._ready and self._call_soon is not None:
            self._call_soon(self.run_ready)
        self._ready.append(held)

    def run_ready(self) -> None:
        """Run every request that was woken."""
        ready, self._ready = self._ready, []
        for held in ready:
            if held.connection.closed:
                continue
            try:
                held.again()
            except Exception:
                log.exception(
                    "a held %s failed when it was woken peer=%s", self.kind, held.connection.peer
                )
