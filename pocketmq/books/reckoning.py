"""Reckoning: the states of a queue's messages now, from its book and from where the group is. No I/O.

1. What was given counts as passed only below the group's offset; above it, the member that has it is asked by
   whether it is online.
2. Messages in flight (popped) and those that were sent back are looked at one by one, before the others.
3. What cannot be told is UNKNOWN.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pocketmq.books.book import Book, Books, Copy
from pocketmq.books.lanes import as_one, broadcast_offset
from pocketmq.books.rows import Way
from pocketmq.books.runs import PIECE_MAX, UNSURE, Piece
from pocketmq.books.sorting import (
    ASKS_ALL,
    DISCARDED,
    KEPT,
    MISSED,
    UNWANTED,
    Pulling,
    asked,
    split_of,
)
from pocketmq.model.balance import Cause, State
from pocketmq.model.pop_receipt import Receipted

Classes = Callable[[str, int, int, int, Pulling], bytes | None]
"""As Sorter.classes."""
_STATES = {
    KEPT: (State.CONSUMED, ""),
    DISCARDED: (State.LOST, Cause.DISCARDED.value),
    MISSED: (State.LOST, Cause.FILTERED.value),
    UNWANTED: (State.FILTERED, ""),
}
_TOLD = {
    Receipted.OUT: State.IN_HAND,
    Receipted.ACKED: State.CONSUMED,
    Receipted.FREE: State.WAITING,
}
# Of several copies, the one that says most counts.
_FINAL = (
    State.CONSUMED,
    State.DEAD,
    State.LOST,
    State.SKIPPED,
    State.EXPIRED,
    State.FILTERED,
    State.UNKNOWN,
)
_CLASSES = {"missed": MISSED, "discarded": DISCARDED}


@dataclass(slots=True)
class Now:
    """Where a group is in a queue. low, high: bounds of the queue; offset: the group's, -1 without one; told:
    what was popped; unread: why no member reads the queue, None if one may.
    """

    low: int
    high: int
    offset: int
    told: Mapping[int, Receipted] = field(default_factory=dict)
    unread: Cause | None = None


class InState(NamedTuple):
    """`size` messages of [begin, end) in one state; is_single: one that is in no other part, though their
    ranges may contain it. of: where they are not all of the range, the class that
    picks them, and how they were given. pulling: how they were given, where that is recorded."""

    begin: int
    end: int
    state: State
    size: int
    cause: str = ""
    member: str = ""
    ms: int = 0
    of: tuple[int, Pulling] | None = None
    is_single: bool = False
    pulling: Pulling | None = None


@dataclass(slots=True)
class Reckoning:
    """One group. now: by topic and queue id; online: client ids; classes: as Sorter.classes; passed: the
    states of messages that the group has moved past and no row has, of a topic, queue id and offsets.
    """

    books: Books
    now: Mapping[tuple[str, int], Now]
    online: frozenset[str]
    classes: Classes
    passed: Callable[[str, int, int, int], Iterator[InState]] | None = None
    _seen: set[tuple[str, int, int]] = field(default_factory=set)

    def begin(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is the group's."""
        book, now = self.books.books.get((topic, queue_id)), self.now[topic, queue_id]
        if book is not None and book.begin is not None:
            return book.begin
        lowest = None if book is None else book.lowest
        if lowest is None:
            return now.low if now.offset < 0 else min(now.low, now.offset)
        return min(now.low, lowest)

    def parts(self, topic: str, queue_id: int, begin: int) -> Iterator[InState]:
        """Yield what [begin, end of the queue) consists of."""
        book = self.books.books.get((topic, queue_id)) or Book()
        now = self._where(book, self.now[topic, queue_id])
        special = self._special(topic, queue_id, book, now, begin)
        for each in as_one(book, self.online).between(begin, now.high):
            if isinstance(each, tuple):
                yield from self._unrecorded(topic, queue_id, *each, now, special)
            elif each.state is not None:
                yield from special.carve(self._moved(each, now))
            else:
                yield from special.carve(self._given(topic, queue_id, each, now))

    def _where(self, book: Book, now: Now) -> Now:
        """Of members that broadcast, no offset is stored: what they report counts."""
        offset = broadcast_offset(book, self.online)
        return now if offset is None else replace(now, offset=offset)

    # ------------------------------------------------------------ one by one

    def _special(self, topic: str, queue_id: int, book: Book, now: Now, begin: int) -> "_Singles":
        """Return what is known of single messages (2)."""
        found = _Singles()
        runs = as_one(book, self.online)
        for offset, told in now.told.items():
            if begin <= offset < now.high and (told is not Receipted.ACKED or offset >= now.offset):
                piece = runs.at(offset)
                member, ms = ("", 0) if piece is None else (piece.member, piece.ms)
                state = _TOLD[told]
                part = InState(offset, offset + 1, state, 1, "", member, ms, is_single=True)
                found.add(offset, KEPT, part)
        for offset in book.back.keys() | book.copies.keys():
            if begin <= offset < now.high and now.told.get(offset) is not Receipted.OUT:
                state, taken_from = self.fate(topic, queue_id, offset)
                back = book.back.get(offset)
                cause, ms = ("", 0) if back is None else (back.cause, back.ms)
                part = InState(offset, offset + 1, state, 1, cause, "", ms, is_single=True)
                found.add(offset, _CLASSES.get(taken_from, KEPT), part)
        return found

    def fate(self, topic: str, queue_id: int, offset: int) -> tuple[State, str]:
        """Return what became of a message that was sent back or redelivered, and what it was taken from."""
        key = (topic, queue_id, offset)
        book = self.books.books.get((topic, queue_id))
        if book is None or key in self._seen:
            return State.RETRY, ""
        self._seen.add(key)
        copies = book.copies.get(offset, [])
        taken_from = next((each.taken_from for each in copies if each.taken_from), "")
        states = {self._state_of(each) for each in copies}
        self._seen.discard(key)
        back = book.back.get(offset)
        if back is not None:
            states.add(back.state)
        final = next((each for each in _FINAL if each in states), State.RETRY)
        if final is State.CONSUMED and taken_from:
            final = State.REDELIVERED
        return final, taken_from

    def _state_of(self, copy: Copy) -> State:
        """Return the state of a copy; RETRY while it is under way."""
        topic, queue_id, offset, _ = copy
        now, book = self.now.get((topic, queue_id)), self.books.books.get((topic, queue_id))
        if now is None or now.told.get(offset) is Receipted.OUT:
            return State.RETRY
        if book is not None and (offset in book.back or offset in book.copies):
            return self.fate(topic, queue_id, offset)[0]
        piece = None if book is None else as_one(book, self.online).at(offset)
        if piece is not None and piece.state is not None:
            return piece.state
        if offset >= now.offset:
            return State.EXPIRED if offset < now.low else State.RETRY
        if piece is None:
            return State.UNKNOWN
        [part] = self._passed(topic, queue_id, piece.cut(offset, offset + 1))
        return part.state

    # ------------------------------------------------------------ many at once

    def _unrecorded(
        self, topic: str, queue_id: int, begin: int, end: int, now: Now, special: "_Singles"
    ) -> Iterator[InState]:
        passed = min(max(begin, now.offset), end)
        if self.passed is not None and begin < passed:
            for single in special.between(begin, passed):
                yield from self.passed(topic, queue_id, begin, single)
                yield from special.carve(self._gap(single, single + 1, now))
                begin = single + 1
            yield from self.passed(topic, queue_id, begin, passed)
            begin = passed
        yield from special.carve(self._gap(begin, end, now))

    def _gap(self, begin: int, end: int, now: Now) -> Iterator[InState]:
        """Yield what no row says anything about."""
        passed = min(max(begin, now.offset), end)
        stored = min(max(passed, now.low), end)
        if begin < passed:
            yield InState(begin, passed, State.UNKNOWN, passed - begin)
        if passed < stored:
            yield InState(passed, stored, State.EXPIRED, stored - passed)
        if stored < end:
            state = State.WAITING if now.unread is None else State.LOST
            yield InState(stored, end, state, end - stored, now.unread or "")

    def _moved(self, piece: Piece, now: Now) -> Iterator[InState]:
        """Yield what was never given, as far as the group is behind it: after a kill it may not be."""
        end = min(piece.end, max(now.offset, piece.begin))
        if piece.state is State.EXPIRED:
            end = piece.end
        if piece.begin < end:
            state = piece.state or State.UNKNOWN
            size = end - piece.begin
            yield InState(piece.begin, end, state, size, piece.cause, piece.member, piece.ms)
        if end < piece.end:
            yield from self._gap(end, piece.end, now)

    def _given(self, topic: str, queue_id: int, piece: Piece, now: Now) -> Iterator[InState]:
        if piece.begin < now.offset:
            yield from self._passed(topic, queue_id, piece.cut(piece.begin, now.offset))
        if piece.end > now.offset:
            piece = piece.cut(now.offset, piece.end)
            if piece.begin < now.low:
                yield from self._gap(piece.begin, min(piece.end, now.low), now)
                if piece.end <= now.low:
                    return
                piece = piece.cut(now.low, piece.end)
            yield from self._held(topic, queue_id, piece, now)

    def _passed(self, topic: str, queue_id: int, piece: Piece) -> Iterator[InState]:
        """Yield the states of messages that the group has moved past."""
        assert piece.pulling is not None
        for each, numbers in self._numbers(topic, queue_id, piece):
            if numbers is None:
                yield InState(each.begin, each.end, State.UNKNOWN, each.size)
                continue
            for kind, count in numbers.items():
                if count:
                    state, cause = _STATES[kind]
                    if kind == UNWANTED and asked(piece.pulling.by) == ASKS_ALL:
                        # A filter that lets everything through: these were deleted.
                        state = State.EXPIRED
                    of = None if count == each.size else (kind, piece.pulling)
                    yield InState(
                        each.begin,
                        each.end,
                        state,
                        count,
                        cause,
                        each.member,
                        each.ms,
                        of,
                        pulling=piece.pulling,
                    )

    def _held(self, topic: str, queue_id: int, piece: Piece, now: Now) -> Iterator[InState]:
        """Yield the states of messages that were given, but not acknowledged yet."""
        assert piece.pulling is not None
        if piece.way is Way.BROADCAST and piece.member not in self.online:
            # It keeps its offsets itself, and has left without saying where it was.
            yield InState(piece.begin, piece.end, State.UNKNOWN, piece.size)
            return
        if piece.is_old or piece.member not in self.online:
            yield from self._gap(piece.begin, piece.end, now)
            return
        for each, numbers in self._numbers(topic, queue_id, piece):
            count = each.count
            if count == UNSURE:
                count = 0 if numbers is None else numbers[KEPT] + numbers[DISCARDED]
            if count:
                yield InState(
                    each.begin,
                    each.end,
                    State.IN_HAND,
                    count,
                    "",
                    each.member,
                    each.ms,
                    None if count == each.size else (KEPT, piece.pulling),
                )
            if count < each.size:
                yield InState(
                    each.begin,
                    each.end,
                    State.WAITING,
                    each.size - count,
                    "",
                    "",
                    0,
                    None if not count else (UNWANTED, piece.pulling),
                )

    def _numbers(
        self, topic: str, queue_id: int, piece: Piece
    ) -> Iterator[tuple[Piece, dict[int, int] | None]]:
        """Yield a piece, or its parts, with the number of messages in each class; None if it is unknown."""
        if UNSURE not in (piece.kept, piece.discarded, piece.missed):
            rest = piece.size - piece.kept - piece.discarded - piece.missed
            numbers = (rest, piece.kept, piece.discarded, piece.missed)
            yield piece, dict(zip((UNWANTED, KEPT, DISCARDED, MISSED), numbers, strict=True))
            return
        if piece.is_folded:
            yield piece, None
            return
        assert piece.pulling is not None
        for begin in range(piece.begin, piece.end, PIECE_MAX):
            each = piece.cut(begin, begin + PIECE_MAX)
            classes = self.classes(topic, queue_id, each.begin, each.end, piece.pulling)
            if classes is None:
                yield each, None
                continue
            kept, discarded, missed = split_of(classes)
            rest = each.size - kept - discarded - missed
            numbers = (rest, kept, discarded, missed)
            yield each, dict(zip((UNWANTED, KEPT, DISCARDED, MISSED), numbers, strict=True))


class _Singles:
    """What is known of single messages: by offset, the class that they would count in, and their part."""

    def __init__(self) -> None:
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
        if not self._found or not parts:
            yield from parts
            return
        begin, end = min(each.begin for each in parts), max(each.end for each in parts)
        for offset in self.between(begin, end):
            kind, part = self._found[offset]
            yield part
            place = _place_of(parts, offset, kind)
            parts[place] = parts[place]._replace(size=parts[place].size - 1)
        yield from (each for each in parts if each.size)


def _place_of(parts: list[InState], offset: int, kind: int) -> int:
    """Return the part that an offset is taken out of: one of its class, if it is in one."""
    places = [
        place for place, each in enumerate(parts) if each.begin <= offset < each.end and each.size
    ]
    for place in places:
        if (parts[place].state, parts[place].cause) == _STATES[kind]:
            return place
    return places[0]
