"""Flights: which messages of lite topics are out, for each group. No clock, no file.

1. A lite topic is an orderly queue of its group: nothing more is handed out of it until all that is out was
   acknowledged or is visible again.
2. What was acknowledged is not handed out again. Ours: RocketMQ 5.5.0 hands out all behind a message that
   failed, and counts an attempt for each.
3. In memory only, as in RocketMQ: after a restart attempts begin at one, and what was acknowledged behind a
   message that was not comes again.
4. A holder (a push consumer) keeps what it has while it is connected, for three hours at most.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from pocketmq.broker.pop.check_point import HELD_MS_MAX
from pocketmq.remoting.transport.peer import Peer


class Lane(NamedTuple):
    """A lite topic as one group sees it."""

    group: str
    key: int


@dataclass(slots=True)
class Outstanding:
    """What is out of one lane. visible_ms: by offset, of those that are neither acknowledged nor dead; times:
    how often each was handed out; held: those that the holder has not given back.
    """

    pop_ms: int
    visible_ms: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    holder: Peer | None = None

    def is_held(self, offset: int, now_ms: int) -> bool:
        """Apply invariant 4."""
        holder = self.holder
        return (
            holder is not None
            and offset in self.held
            and not holder.closed
            and now_ms < self.pop_ms + HELD_MS_MAX
        )

    def is_out(self, offset: int, now_ms: int) -> bool:
        """Return True if a message is neither acknowledged nor visible again."""
        at_ms = self.visible_ms.get(offset)
        return at_ms is not None and (at_ms > now_ms or self.is_held(offset, now_ms))

    def is_blocked(self, now_ms: int) -> bool:
        """Apply invariant 1."""
        return any(self.is_out(offset, now_ms) for offset in self.visible_ms)


class Flights:
    """All flights, by lane."""

    def __init__(self) -> None:
        self._of: dict[Lane, Outstanding] = {}
        self._pop_ms = 0

    def __len__(self) -> int:
        return len(self._of)

    def get(self, lane: Lane) -> Outstanding | None:
        return self._of.get(lane)

    def is_blocked(self, lane: Lane, now_ms: int) -> bool:
        """Return True while nothing may be handed out (invariant 1)."""
        flight = self._of.get(lane)
        return flight is not None and flight.is_blocked(now_ms)

    def pop_ms(self, now_ms: int) -> int:
        """Return the time of the next pop: later than that of the last, since receipts name it."""
        self._pop_ms = max(now_ms, self._pop_ms + 1)
        return self._pop_ms

    def out(
        self, lane: Lane, offsets: list[int], pop_ms: int, visible_ms: int, holder: Peer | None
    ) -> list[int]:
        """Hand out messages. Returns: how often each was handed out before."""
        flight = self._of.setdefault(lane, Outstanding(pop_ms))
        flight.pop_ms, flight.holder = pop_ms, holder
        flight.held = set() if holder is None else set(offsets)
        flight.visible_ms = dict.fromkeys(offsets, visible_ms)
        before = [flight.times.get(offset, 0) for offset in offsets]
        for offset, count in zip(offsets, before, strict=True):
            flight.times[offset] = count + 1
        return before

    def is_out(self, lane: Lane, offset: int, pop_ms: int, now_ms: int) -> bool:
        """Return True if the pop of that time handed the message out, and it is still out."""
        flight = self._of.get(lane)
        return flight is not None and flight.pop_ms == pop_ms and flight.is_out(offset, now_ms)

    def done(self, lane: Lane, offset: int, committed: int) -> int:
        """Acknowledge a message that is out. Returns: the group's next offset."""
        flight = self._of[lane]
        flight.visible_ms.pop(offset, None)
        flight.times.pop(offset, None)
        flight.acked.add(offset)
        while committed in flight.acked:
            flight.acked.discard(committed)
            committed += 1
        if not flight.visible_ms and not flight.acked and not flight.times:
            del self._of[lane]
        return committed

    def passed(self, lane: Lane, offset: int) -> bool:
        """Return True if a message was acknowledged before those in front of it (invariant 2)."""
        flight = self._of.get(lane)
        return flight is not None and offset in flight.acked

    def postpone(self, lane: Lane, offset: int, visible_ms: int, *, untried: bool) -> None:
        """Change when a message that is out is visible again; untried: this was no attempt."""
        flight = self._of[lane]
        flight.visible_ms[offset] = visible_ms
        flight.held.discard(offset)
        if untried:
            flight.times[offset] = max(0, flight.times.get(offset, 0) - 1)

    def forget(self, lane: Lane) -> None:
        self._of.pop(lane, None)

    def due(self, now_ms: int) -> list[Lane]:
        """Return the lanes that have messages and are not blocked any more."""
        return [
            lane
            for lane, flight in self._of.items()
            if flight.visible_ms and not flight.is_blocked(now_ms)
        ]

    def release(self, peer: Peer, visible_ms: int) -> None:
        """A holder has gone: what it has is visible soon."""
        for flight in self._of.values():
            if flight.holder is peer:
                flight.holder = None
                flight.visible_ms.update(
                    dict.fromkeys(flight.held & set(flight.visible_ms), visible_ms)
                )
