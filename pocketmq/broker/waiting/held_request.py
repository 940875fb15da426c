"""HeldRequest, Woken: what pulls and pops that wait for a message have in common.

A woken request is run in the next turn of the event loop, or in a later one if there are many; not before
its peer has read what it was sent, and not at all if its connection has closed. Owners: LongPolling and
PopPolling, each with a Woken of its own.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.turns import CallSoon, Turns
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

_LOW_WORD = 0xFFFF_FFFF
# Parts of expressions that are evaluated for one message: about 5 ms.
_LOOKS_COST_MAX = 20_000
# Parts of an expression that weigh as much as a request without one: some KB of memory. So do texts of that
# many bytes.
_COST_OF_ONE, _SIZE_OF_ONE = 4, 4_096


class HeldRequest:
    """One held request: its filter, its deadline (monotonic ms), and its place (the owner's key)."""

    __slots__ = (
        "again",
        "codes",
        "connection",
        "cost",
        "deadline_ms",
        "properties",
        "queue",
        "weight",
    )

    def __init__(
        self,
        again: Callable[[], None],
        connection: Peer,
        matches: EntryFilter | None,
        deadline_ms: int,
        properties: Callable[[bytes], bool] | None = None,
    ) -> None:
        """again: answers the request when it is done waiting, or holds it again; matches: the tag codes
        that wake it; properties: what the message's properties must pass.
        """
        self.again = again
        self.connection = connection
        codes = matches.codes if matches is not None else None
        self.codes = None if codes is None else frozenset(code & _LOW_WORD for code in codes)
        self.deadline_ms = deadline_ms
        self.properties = properties
        self.cost: int = 0 if properties is None else getattr(matches, "cost", 1)
        self.weight = 1 + self.cost // _COST_OF_ONE
        self.queue: Any = None

    def weigh(self, *texts: str | None) -> None:
        """Count what the texts of the request take, which may have any length; before it is held."""
        self.weight += sum([len(text) for text in texts if text]) // _SIZE_OF_ONE


class Arrival:
    """A new message, as the held requests look at it.

    Costly filters are evaluated within a budget; requests beyond it are woken unseen: running them again
    costs a turn each, and the response their clients another request.
    """

    __slots__ = ("_budget", "_properties", "_word")

    def __init__(self, tags_code: int, properties: bytes) -> None:
        """tags_code as the queue's entry holds it."""
        self._word = tags_code & _LOW_WORD
        self._properties = properties
        self._budget = _LOOKS_COST_MAX

    def concerns(self, held: HeldRequest) -> bool:
        """Return True if the request is to be woken."""
        if held.codes is not None and self._word not in held.codes:
            return False
        if held.properties is None or self._budget < 0:
            return True
        self._budget -= held.cost
        return held.properties(self._properties)


Held = TypeVar("Held", bound=HeldRequest)


class Woken(Generic[Held]):
    """The held requests by connection, and the woken ones that have not been run yet.

    Attributes: kind (of request, for the log), count (how many are held), weight (the same, but one with a
    filter counts for more, by the filter's size).
    """

    kind = "request"

    def __init__(self, clock: Clock, call_soon: CallSoon | None) -> None:
        """call_soon: see Turns."""
        self._clock = clock
        self._of: dict[Peer, dict[Held, None]] = {}
        self.count = self.weight = 0
        self._ready = Turns[Held](clock, call_soon, self._run_when_read)

    def enter(self, held: Held, queue: Any) -> None:
        """Add a held request, at `queue`."""
        held.queue = queue
        self._of.setdefault(held.connection, {})[held] = None
        self.count += 1
        self.weight += held.weight

    def leave(self, held: Held) -> None:
        """Remove a held request."""
        self.count -= 1
        self.weight -= held.weight
        of = self._of[held.connection]
        del of[held]
        if not of:
            del self._of[held.connection]

    def cancel(self, connection: Peer, again: Callable[[], None]) -> bool:
        """Remove the request whose callback is `again`; False if it is not held."""
        for held in self._of.get(connection, ()):
            if held.again is again:
                self.leave(held)
                self._forget(held)
                return True
        return False

    def connection_closed(self, connection: Peer) -> None:
        """Drop the requests of a closed connection: in slices, since freeing large filters takes time."""
        for held in list(self._of.get(connection, ())):
            self.leave(held)
            self._forget(held)
            self.run_soon(held)

    def _forget(self, held: Held) -> None:
        """Remove it from the owner's own tables."""
        raise NotImplementedError

    def run_soon(self, held: Held) -> None:
        """Run it in the next turn of the loop, or in a later one if there are many."""
        self._ready.add([held])

    def run_all(self) -> None:
        """Run every woken request now, however long it takes: the broker stops."""
        self._ready.finish()

    def _run_when_read(self, held: Held) -> None:
        if not held.connection.closed:
            held.connection.when_read(partial(self._run, held))

    def _run(self, held: Held) -> None:
        try:
            held.again()
        except Exception:
            log.exception("cannot answer a held %s peer=%s", self.kind, held.connection.address)
