"""Lanes as one: the pieces of an isolated group's sub-groups, or of members that broadcast, for one queue.

1. Of an isolated group a message counts as given if it was given to any sub-group: it belongs to one.
2. Where members broadcast, it counts as given once every member that is online has got it, and as passed once
   all of them report an offset beyond it. A member that began later does not count for what was before. While
   none is online, what any of them has got and reported counts.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

from pocketmq.books.book import Book
from pocketmq.books.rows import Way
from pocketmq.books.runs import UNSURE, Piece, Runs
from pocketmq.books.sorting import Pulling, asked

_TAG = "TAG "


def as_one(book: Book, online: Collection[str]) -> Runs:
    """Return the pieces of a book as those of one lane."""
    lanes = {key: runs for key, runs in book.lanes.items() if len(runs)}
    if not lanes:
        return Runs()
    if len(lanes) == 1:
        return next(iter(lanes.values()))
    all_ = [
        runs for (way, client), runs in lanes.items() if way is Way.BROADCAST and client in online
    ]
    if all_:
        return _merged(all_, everyone=True)
    return _merged(list(lanes.values()), everyone=False)


def broadcast_offset(book: Book, online: Collection[str]) -> int | None:
    """Return behind what the members that broadcast have processed; None if none does."""
    lanes = {name for (way, name), runs in book.lanes.items() if way is Way.BROADCAST and len(runs)}
    if not lanes:
        return None
    here = lanes & set(online)
    if here:
        return min(book.reports.get(name, -1) for name in here)
    return max((book.reports.get(name, -1) for name in lanes), default=-1)


def _merged(lanes: Sequence[Runs], *, everyone: bool) -> Runs:
    pieces = [list(_pieces(runs)) for runs in lanes]
    edges = sorted({edge for each in pieces for piece in each for edge in (piece.begin, piece.end)})
    merged = Runs()
    for begin, end in pairwise(edges):
        under = [piece.cut(begin, end) for runs in lanes if (piece := runs.at(begin)) is not None]
        begun = sum(1 for each in pieces if each and each[0].begin <= begin)
        if under and (not everyone or len(under) == begun):
            merged.put(reduce(_both, under))
    return merged


def _pieces(runs: Runs) -> Iterator[Piece]:
    for each in runs.between(0, runs.end):
        if isinstance(each, Piece):
            yield each


def _both(one: Piece, other: Piece) -> Piece:
    """Return what two lanes say of the same offsets. What was given says more than what was not."""
    if other.state is not None or other.pulling is None:
        return one
    if one.state is not None or one.pulling is None:
        return other
    later = max(one, other, key=lambda each: each.ms)
    if one.pulling == other.pulling:
        return later
    either = _either(one.pulling.own, other.pulling.own)
    if either is None:
        # Two expressions that cannot be one: each message went to one of the two.
        count = UNSURE if UNSURE in (one.count, other.count) else one.count + other.count
        pulling = Pulling(one.pulling.own, one.pulling.own, (one.pulling.own,))
    else:
        count = one.size if asked(either).codes is None else UNSURE
        pulling = Pulling(either, either, (either,))
    rest = UNSURE if count == UNSURE else 0
    return replace(later, pulling=pulling, count=count, kept=count, discarded=rest, missed=rest)


def _either(one: str, other: str) -> str | None:
    """Return an expression for what either of two lets through, or None."""
    if asked(one) == asked(other):
        return one
    for text in (one, other):
        if asked(text) == asked(""):
            return text
    if one.startswith(_TAG) and other.startswith(_TAG):
        return f"{one} || {other.removeprefix(_TAG)}"
    return None
