"""Parts of a queue in one state, without the messages that are known one by one. No I/O."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pocketmq.books.given_back import GivenBack, GivenRuns
from pocketmq.books.sorting import DISCARDED, KEPT, MISSED, UNWANTED, Pulling
from pocketmq.model.balance import Cause, State

STATES = {
    KEPT: (State.CONSUMED, ""),
    DISCARDED: (State.LOST, Cause.DISCARDED.value),
    MISSED: (State.LOST, Cause.FILTERED.value),
    UNWANTED: (State.FILTERED, ""),
}


class InState(NamedTuple):
    """`size` messages of [begin, end) in one state.

    picks: their offsets, ascending, where they are known one by one; they are in no other part, though the
    ranges of others may contain them. of: where the messages are not all of the range, the class that picks
    them, and how they were given. pulling: how they were given, where that is recorded.
    """

    begin: int
    end: int
    state: State
    size: int
    cause: str = ""
    member: str = ""
    ms: int = 0
    of: tuple[int, Pulling] | None = None
    picks: Sequence[int] = ()
    pulling: Pulling | None = None


def ranges_of(classes: bytes | None, kind: int) -> Iterator[tuple[int, int]]:
    """Yield [first, behind) of the places of a class; none if the classes are unknown."""
    for found in _RANGES[kind].finditer(classes or b""):
        yield found.span()


_RANGES = {kind: re.compile(b"[%s]+" % re.escape(bytes((kind,)))) for kind in STATES}


class KnownSingly:
    """What is known of single messages: by offset, the class that they would count in, and their part; and of
    those that were given back, which are no part of others either.
    """

    def __init__(self, given: GivenRuns) -> None:
        self._given = given
        self._found: dict[int, tuple[int, InState]] = {}
        self._sorted: list[int] | None = None

    def add(self, offset: int, kind: int, part: InState) -> None:
        """Add one."""
        self._found[offset] = kind, part
        self._sorted = None

    def between(self, begin: int, end: int) -> list[int]:
        """Return their offsets in [begin, end), sorted."""
        if self._sorted is None:
            self._sorted = sorted(self._found)
        return self._sorted[bisect_left(self._sorted, begin) : bisect_left(self._sorted, end)]

    def carve(self, parts: Iterable[InState]) -> Iterator[InState]:
        """Yield parts of one range without the messages that are known singly, and these."""
        parts = list(parts)
        if not (self._found or self._given.runs) or not parts:
            yield from parts
            return
        begin, end = min(each.begin for each in parts), max(each.end for each in parts)
        singles = self.between(begin, end)
        for run in self._given.touching(begin, end):
            _take_run(parts, run, singles)
        for offset in singles:
            kind, part = self._found[offset]
            yield part
            place = _place_of(parts, offset, kind)
            parts[place] = parts[place]._replace(size=parts[place].size - 1)
        yield from (each for each in parts if each.size)


def _take_run(parts: list[InState], run: GivenBack, singles: Sequence[int]) -> None:
    """Take what was given back out of its parts, but for the single ones."""
    for begin, end in dict.fromkeys((each.begin, each.end) for each in parts):
        first, behind = run.between(begin, end)
        counts = Counter({kind: run.kinds.count(kind, first, behind) for kind in STATES})
        for offset in singles[bisect_left(singles, begin) : bisect_left(singles, end)]:
            copy = run.copy_of(offset)
            if copy is not None:
                counts[run.kinds[copy - run.begin]] -= 1
        own = [place for place, each in enumerate(parts) if (each.begin, each.end) == (begin, end)]
        for kind, count in counts.items():
            # Of its class, if there are such.
            own.sort(key=lambda at: (parts[at].state, parts[at].cause) != STATES[kind])
            for place in own:
                taken = min(count, parts[place].size)
                parts[place] = parts[place]._replace(size=parts[place].size - taken)
                count -= taken


def _place_of(parts: list[InState], offset: int, kind: int) -> int:
    """Return the part that an offset is taken out of: one of its class, if it is in one."""
    places = [
        place for place, each in enumerate(parts) if each.begin <= offset < each.end and each.size
    ]
    for place in places:
        if (parts[place].state, parts[place].cause) == STATES[kind]:
            return place
    return places[0]
