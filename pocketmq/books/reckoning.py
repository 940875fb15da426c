"""Reckoning: the states of a queue's messages now, from its book and from where the group is. No I/O.

1. What was given counts as passed only below the group's offset; above it, the member that has it is asked by
   whether it is online.
2. Messages in flight (popped) and those that were sent back are looked at one by one, before the others; what
   was given back by runs of copies, which are in one state.
3. What cannot be told is UNKNOWN.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pocketmq.books.book import Book, Books, Copy
from pocketmq.books.given_back import GivenBack
from pocketmq.books.in_state import STATES, InState, KnownSingly, ranges_of
from pocketmq.books.lanes import as_one, broadcast_offset
from pocketmq.books.rows import Way
from pocketmq.books.runs import PIECE_MAX, UNSURE, Piece, Runs
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
    # By queue, since a question asks often: its pieces, and the messages that are known singly.
    _runs: dict[tuple[str, int], Runs] = field(default_factory=dict)
    _odd: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def begin(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is the group's."""
        book, now = self.books.books.get((topic, queue_id)), self.now[topic, queue_id]
        if book is not None and book.begin is not None:
            return book.begin
        lowest = None if book is None else book.lowest
        if lowest is None:
            return now.low if now.offset < 0 else min(now.low, now.offset)
        return min(now.low, lowest)

    def parts(
        self, topic: str, queue_id: int, begin: int, end: int | None = None
    ) -> Iterator[InState]:
        """Yield what [begin, end) consists of; up to the end of the queue, without an `end`."""
        book = self.books.books.get((topic, queue_id)) or Book()
        now = self._where(book, self.now[topic, queue_id])
        if end is not None and end < now.high:
            now = replace(now, high=end)
        special = self._special(topic, queue_id, book, now, begin)
        yield from self._given_back(book, special, begin, now.high)
        for each in self._pieces(topic, queue_id, book).between(begin, now.high):
            if isinstance(each, tuple):
                yield from self._unrecorded(topic, queue_id, *each, now, special)
            elif each.state is not None:
                yield from special.carve(self._moved(each, now))
            else:
                yield from special.carve(self._given(topic, queue_id, each, now))

    def windows(
        self, topic: str, queue_id: int, begin: int, size: int
    ) -> Iterator[tuple[int, int]]:
        """Yield what to ask `parts` for, one after the other: ranges that cut no piece."""
        book, high = (
            self.books.books.get((topic, queue_id)) or Book(),
            self.now[topic, queue_id].high,
        )
        runs = self._pieces(topic, queue_id, book)
        while begin < high:
            end = min(begin + size, high)
            piece = runs.at(end - 1)
            end = end if piece is None else min(max(end, piece.end), high)
            yield begin, end
            begin = end

    def _where(self, book: Book, now: Now) -> Now:
        """Of members that broadcast, no offset is stored: what they report counts."""
        offset = broadcast_offset(book, self.online)
        return now if offset is None else replace(now, offset=offset)

    def _pieces(self, topic: str, queue_id: int, book: Book) -> Runs:
        found = self._runs.get((topic, queue_id))
        if found is None:
            found = self._runs[topic, queue_id] = as_one(book, self.online)
        return found

    # ------------------------------------------------------------ one by one

    def _known_singly(self, key: tuple[str, int]) -> list[int]:
        """Return the offsets that are looked at one by one, sorted."""
        found = self._odd.get(key)
        if found is None:
            book = self.books.books.get(key) or Book()
            found = self._odd[key] = sorted({*self.now[key].told, *book.back, *book.copies})
        return found

    def _special(
        self, topic: str, queue_id: int, book: Book, now: Now, begin: int
    ) -> "KnownSingly":
        """Return what is known of single messages (2)."""
        found = KnownSingly(book.given_back)
        runs = self._pieces(topic, queue_id, book)
        odd = self._known_singly((topic, queue_id))
        for offset in odd[bisect_left(odd, begin) : bisect_left(odd, now.high)]:
            told = now.told.get(offset)
            if told is not Receipted.OUT and (offset in book.back or offset in book.copies):
                state, taken_from = self.fate(topic, queue_id, offset)
                back = book.back.get(offset)
                cause, ms = ("", 0) if back is None else (back.cause, back.ms)
                part = InState(offset, offset + 1, state, 1, cause, "", ms, picks=(offset,))
                found.add(offset, taken_from or KEPT, part)
            elif told is not None and (told is not Receipted.ACKED or offset >= now.offset):
                piece = runs.at(offset)
                member, ms = ("", 0) if piece is None else (piece.member, piece.ms)
                state = _TOLD[told]
                part = InState(offset, offset + 1, state, 1, "", member, ms, picks=(offset,))
                found.add(offset, KEPT, part)
        return found

    def fate(self, topic: str, queue_id: int, offset: int) -> tuple[State, int]:
        """Return what became of a message that was sent back or redelivered, and the class it had before; 0
        without one.
        """
        key = (topic, queue_id, offset)
        book = self.books.books.get((topic, queue_id))
        if book is None or key in self._seen:
            return State.RETRY, 0
        self._seen.add(key)
        copies, taken_from = book.copies.get(offset, []), 0
        given = book.given_back.at(offset)
        if given is not None:
            run, copy = given
            taken_from = run.kinds[copy - run.begin]
            copies = [Copy(run.topic, run.queue_id, copy), *copies]
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
        topic, queue_id, offset = copy
        now, book = self.now.get((topic, queue_id)), self.books.books.get((topic, queue_id))
        if now is None or now.told.get(offset) is Receipted.OUT:
            return State.RETRY
        if book is not None and (offset in book.back or offset in book.copies):
            return self.fate(topic, queue_id, offset)[0]
        [(_, _, state)] = self._of_copies(topic, queue_id, now, offset, offset + 1)
        return state

    # ------------------------------------------------------------ given back

    def _given_back(
        self, book: Book, special: "KnownSingly", begin: int, end: int
    ) -> Iterator[InState]:
        """Yield what was given back and is not among the single ones."""
        for whole in book.given_back.touching(begin, end):
            run = whole.part(*whole.between(begin, end))
            for part in run.without(special.between(begin, end)):
                for first, behind, state in self._under_way(part):
                    origins = part.origins[first - part.begin : behind - part.begin]
                    state = State.REDELIVERED if state is State.CONSUMED else state
                    yield InState(origins[0], origins[-1] + 1, state, len(origins), picks=origins)

    def _under_way(self, run: GivenBack) -> Iterator[tuple[int, int, State]]:
        """Yield the states of a run's copies, by their offsets."""
        key = (run.topic, run.queue_id)
        now = self.now.get(key)
        if now is None:
            yield run.begin, run.end, State.RETRY
            return
        odd = self._known_singly(key)
        at = run.begin
        for offset in odd[bisect_left(odd, run.begin) : bisect_left(odd, run.end)]:
            yield from self._of_copies(*key, now, at, offset)
            yield offset, offset + 1, self._state_of(Copy(*key, offset))
            at = offset + 1
        yield from self._of_copies(*key, now, at, run.end)

    def _of_copies(
        self, topic: str, queue_id: int, now: Now, begin: int, end: int
    ) -> Iterator[tuple[int, int, State]]:
        """Yield the states of copies that are not known singly."""
        book = self.books.books.get((topic, queue_id)) or Book()
        for each in self._pieces(topic, queue_id, book).between(begin, end):
            piece = None if isinstance(each, tuple) else each
            first, behind = each if isinstance(each, tuple) else (each.begin, each.end)
            if piece is not None and piece.state is not None:
                yield first, behind, piece.state
                continue
            passed = min(max(first, now.offset), behind)
            stored = min(max(passed, now.low), behind)
            if first < passed and piece is not None:
                yield from self._one_by_one(topic, queue_id, piece.cut(first, passed))
            elif first < passed:
                yield first, passed, State.UNKNOWN
            if passed < stored:
                yield passed, stored, State.EXPIRED
            if stored < behind:
                yield stored, behind, State.RETRY

    def _one_by_one(
        self, topic: str, queue_id: int, piece: Piece
    ) -> Iterator[tuple[int, int, State]]:
        """Yield the states of messages that were passed; UNKNOWN where only numbers are known."""
        untold = -1
        for part in self._passed(topic, queue_id, piece):
            if part.of is None:
                yield part.begin, part.end, part.state
                continue
            kind, pulling = part.of
            classes = self.classes(topic, queue_id, part.begin, part.end, pulling)
            for first, behind in ranges_of(classes, kind):
                yield part.begin + first, part.begin + behind, part.state
            if classes is None and untold != part.begin:
                untold = part.begin
                yield part.begin, part.end, State.UNKNOWN

    # ------------------------------------------------------------ many at once

    def _unrecorded(
        self, topic: str, queue_id: int, begin: int, end: int, now: Now, special: "KnownSingly"
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
                    state, cause = STATES[kind]
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
