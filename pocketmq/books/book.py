"""Book: what the record says of one queue in one group, row by row. No I/O.

1. An administrator's reset forwards skips all before it that was not acknowledged; what one backwards passes
   will be given again, unless a kill takes the reset back.
2. What a member's own move skips is what was never given.
3. A message that was sent back counts by its copies; `back` has where they went, `copies` where they are,
   `given_back` where those are of messages that were redelivered.
"""

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from pocketmq.books.given_back import GivenBack, GivenRuns, parse_given, parse_kinds
from pocketmq.books.rows import (
    DELETED,
    EVENT,
    FOLDED,
    FORGOTTEN,
    SPAN,
    EventKind,
    Row,
    Texts,
    Way,
    began_ms,
    parse_origin,
)
from pocketmq.books.runs import UNSURE, Piece, Runs, folded_pulling
from pocketmq.books.sorting import ASKS_ALL, Pulling, asked
from pocketmq.model.balance import State
from pocketmq.model.pop_receipt import normal_topic

_KINDS = frozenset(each.value for each in EventKind)


class Back(NamedTuple):
    """A message that was sent back: RETRY or DEAD."""

    state: State
    cause: str
    ms: int


class Copy(NamedTuple):
    """Where a copy of a message is."""

    topic: str
    queue_id: int
    offset: int


@dataclass(slots=True)
class Book:
    """begin: the first offset that the group asked for, None if unknown. lanes: pieces, by what shares them:
    "" for the whole group, an expression in an isolated group, a client that broadcasts.
    """

    begin: int | None = None
    lanes: dict[tuple[Way, str], Runs] = field(default_factory=dict)
    back: dict[int, Back] = field(default_factory=dict)
    copies: dict[int, list[Copy]] = field(default_factory=dict)
    given_back: GivenRuns = field(default_factory=GivenRuns)
    # By client id: the offset that a member that broadcasts has reported last.
    reports: dict[str, int] = field(default_factory=dict)

    def lane(self, way: Way = Way.SHARED, name: str = "") -> Runs:
        """Return the pieces of a lane."""
        found = self.lanes.get((way, name))
        if found is None:
            found = self.lanes[way, name] = Runs()
        return found

    @property
    def lowest(self) -> int | None:
        """Return the first offset of any piece."""
        begins = [
            first.begin
            for runs in self.lanes.values()
            for first in runs.between(0, runs.end)
            if isinstance(first, Piece)
        ]
        return min(begins, default=None)

    def given(self, row: Row, texts: Texts) -> None:
        """Enter a span."""
        piece, way = _piece(row, texts)
        if way is Way.STRANGER:
            self.lane().fill(piece)
        elif way is Way.SHARED or piece.pulling is None:
            self.lane().put(piece)
        elif way is Way.ISOLATED:
            self.lane(way, piece.pulling.own).put(piece)
        else:
            self.lane(way, piece.member).put(piece)

    def folded(self, row: Row, texts: Texts) -> None:
        """Enter a sum (folding.py)."""
        begin, end, client, way, lane, cause, state, asks_all = row[4:12]
        count, kept, discarded, missed = row[12:16]
        pulling = folded_pulling(asks_all=asks_all)
        piece = Piece(
            begin,
            end,
            State.of(state) if state else None,
            texts.get(client, ""),
            texts.get(cause, ""),
            row[16],
            None if state else pulling,
            count,
            kept,
            discarded,
            missed,
            way=Way(way),
        )
        self.lane(Way(way), texts.get(lane, "")).put(piece)

    def event(self, kind: EventKind, begin: int, end: int, text: str, ms: int) -> None:
        """Enter an event that concerns this queue alone."""
        match kind:
            case EventKind.START:
                self.begin = end if self.begin is None else min(self.begin, end)
            case EventKind.RESET if end < begin:
                self._again(end)
            case EventKind.RESET:
                self._note_begin(begin)
                self._mark(Piece(begin, end, State.SKIPPED, "", text, ms), fills=False)
            case EventKind.COMMIT | EventKind.JUMP if begin < end:
                self._mark(Piece(begin, end, State.SKIPPED, "", text, ms), fills=True)
            case EventKind.EXPIRED if begin < end:
                self._note_begin(begin)
                for offset in [each for each in self.back if begin <= each < end]:
                    del self.back[offset]
                self._mark(Piece(begin, end, State.EXPIRED, "", text, ms), fills=False)
            case EventKind.RETRY:
                self.back[begin] = Back(State.RETRY, text, ms)
            case EventKind.REPORT:
                self.reports[text] = end
            case EventKind.DEAD:
                self.back[begin] = Back(State.DEAD, text, ms)

    def _note_begin(self, offset: int) -> None:
        """A group whose offset is set before it ever pulls begins there."""
        if self.begin is None and not self.lanes:
            self.begin = offset

    def _again(self, begin: int) -> None:
        if self.begin is not None:
            self.begin = min(self.begin, begin)
        for runs in self.lanes.values():
            runs.age(begin)
        for table in (self.back, self.copies):
            for offset in [offset for offset in table if offset >= begin]:
                del table[offset]
        self.given_back.cut(begin)

    def redelivered(self, run: GivenBack) -> None:
        """Enter what was given back: what became of these messages before counts no more."""
        if self.back or self.copies:
            for offset in run.origins:
                self.back.pop(offset, None)
                self.copies.pop(offset, None)
        self.given_back.put(run)

    def _mark(self, piece: Piece, *, fills: bool) -> None:
        for runs in list(self.lanes.values()) or [self.lane()]:
            runs.fill(piece) if fills else runs.put(piece)


class Books:
    """All of one group, by topic and queue id."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.books: dict[tuple[str, int], Book] = {}
        # Start of the record, wall ms; 0 without one.
        self.since_ms = 0

    def __len__(self) -> int:
        """Return the number of pieces, and what else takes as much memory."""
        pieces = sum(len(runs) for book in self.books.values() for runs in book.lanes.values())
        return pieces + sum(
            len(book.back) + len(book.copies) + len(book.given_back) // 32
            for book in self.books.values()
        )

    def book(self, topic: str, queue_id: int) -> Book:
        """Return the book of a queue."""
        found = self.books.get((topic, queue_id))
        if found is None:
            found = self.books[topic, queue_id] = Book()
        return found

    def forget(self, topic: str) -> None:
        """Drop a topic: it or its offsets were deleted."""
        for key in [key for key in self.books if key[0] == topic]:
            del self.books[key]

    def enter(self, texts: Texts, row: Row) -> None:
        """Enter a row, if it concerns this group."""
        self.since_ms = self.since_ms or began_ms(row)
        kind = row[0]
        if kind == DELETED:
            topic = texts.get(row[1], "")
            for each in {of for of, _ in self.books if normal_topic(of, self.group) == topic}:
                self.forget(each)
        elif texts.get(row[2 if kind == EVENT else 1]) != self.group:
            return
        elif kind == FORGOTTEN:
            self.forget(texts.get(row[2], ""))
        elif kind == EVENT:
            self.event(row, texts)
        elif kind == FOLDED:
            self.book(texts.get(row[2], ""), row[3]).folded(row, texts)
        else:
            self.span(row, texts)

    def span(self, row: Row, texts: Texts) -> None:
        """Enter a span of this group."""
        self.book(texts.get(row[2], ""), row[3]).given(row, texts)

    def event(self, row: Row, texts: Texts) -> None:
        """Enter an event of this group; a kind that is not known is a newer version's."""
        kind, _, topic_number, queue_id, begin, end, text, ms = row[1:]
        topic = texts.get(topic_number, "")
        if kind not in _KINDS:
            return
        if kind == EventKind.COPY:
            self.copied(topic, queue_id, begin, text)
            return
        if kind == EventKind.REDELIVERED:
            first_topic, first_queue, run = parse_given(topic, queue_id, begin, text)
            self.book(first_topic, first_queue).redelivered(run)
            return
        self.book(topic, queue_id).event(EventKind(kind), begin, end, text, ms)

    def copied(self, topic: str, queue_id: int, offset: int, text: str) -> None:
        """Enter where a copy is. text: of what, as `origin_text` makes it."""
        first_topic, first_queue, first, taken_from = parse_origin(text)
        book = self.book(first_topic, first_queue)
        if taken_from:
            kinds = parse_kinds(taken_from[:1], 1)
            book.redelivered(GivenBack(topic, queue_id, offset, array("q", (first,)), kinds))
        else:
            book.copies.setdefault(first, []).append(Copy(topic, queue_id, offset))


def _piece(row: Row, texts: Texts) -> tuple[Piece, Way]:
    client, by, own = (texts.get(number, "") for number in row[7:10])
    begin, end, count = row[4:7]
    if row[0] == SPAN:
        pulling, is_alike = _pulling(by, own, None)
        way, split = Way.SHARED, None
    else:
        pulling, is_alike = _pulling(by, own, texts.get(row[10], ""))
        way, split = Way(row[11]), row[12]
    kept, discarded, missed = split or (UNSURE, UNSURE, UNSURE)
    if split is None and (way in (Way.ISOLATED, Way.STRANGER) or is_alike):
        kept, discarded, missed = count, 0, 0
        if way is Way.ISOLATED and count < end - begin and asked(own) == ASKS_ALL:
            # Several sub-groups ask for all of this topic: what this one did not get another did.
            kept = UNSURE
    numbers = (count, kept, discarded, missed)
    return Piece(begin, end, None, client, "", row[-1], pulling, *numbers, way=way), way


# Of a group's rows, nearly all are given in one of a few ways.
@lru_cache(maxsize=256)
def _pulling(by: str, own: str, wishes: str | None) -> tuple[Pulling, bool]:
    """Return how a row was given, and whether alike to all. wishes: a line each; None: not recorded."""
    all_wishes = tuple(wishes.split("\n")) if wishes else ()
    if wishes is None:
        all_wishes = tuple(sorted({by, own or by}))
    found = Pulling(by, own, all_wishes)
    return found, found.is_alike
