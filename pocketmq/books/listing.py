"""Sums and lists of a queue's messages by their states. No I/O."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter

from pocketmq.books.in_state import InState, ranges_of
from pocketmq.books.reckoning import Classes, Reckoning
from pocketmq.books.runs import FOLDED_OWN
from pocketmq.books.sorting import Pulling, subscription_of
from pocketmq.model.balance import Balance, ListedMessages, State

LISTED_MAX = 100_000
_first = attrgetter("first")


def add_queue(balance: Balance, reckoning: Reckoning, queue_id: int, begin: int) -> None:
    """Add the messages of a queue of the balance's topic, from an offset on."""
    balance.stored += max(0, reckoning.now[balance.topic, queue_id].high - begin)
    for part in reckoning.parts(balance.topic, queue_id, begin):
        balance.add(part.state, part.size)


def listed_of(
    queue: tuple[str, str, int],
    parts: Sequence[InState],
    states: Container[State],
    classes: Classes,
) -> Iterator[ListedMessages]:
    """Yield the messages of parts in these states, in the order of the queue, as ranges.

    queue: topic, broker, queue id; parts: all of the queue; classes: as Sorter.classes.
    """
    taken = _taken(parts)
    wanted = sorted((part for part in parts if part.state in states), key=lambda each: each.begin)
    for together in _overlapping(wanted):
        rows = [_rows(queue, part, taken, classes) for part in together]
        yield from rows[0] if len(rows) == 1 else merge(*rows, key=_first)


def _taken(parts: Iterable[InState]) -> "array[int]":
    """Return all offsets that are known one by one, ascending."""
    found = array("q")
    in_order = True
    for part in parts:
        if part.picks:
            in_order = in_order and (not found or found[-1] < part.picks[0])
            found.extend(part.picks)
    return found if in_order else array("q", sorted(found))


def _overlapping(parts: Iterable[InState]) -> Iterator[list[InState]]:
    """Yield parts together whose ranges overlap; they come by their first offsets."""
    found: list[InState] = []
    end = 0
    for part in parts:
        if found and part.begin >= end:
            yield found
            found = []
        found.append(part)
        end = max(end, part.end)
    if found:
        yield found


def _rows(
    queue: tuple[str, str, int], part: InState, taken: Sequence[int], classes: Classes
) -> Iterator[ListedMessages]:
    ranges = _ranges(queue[0], queue[2], part, classes)
    if not part.picks and taken:
        ranges = _without(ranges, taken)
    told = _subscriptions(part.pulling)
    for first, last in ranges:
        yield ListedMessages(
            *queue, first, last, part.state, part.cause, part.member, part.ms, *told
        )


def _ranges(
    topic: str, queue_id: int, part: InState, classes: Classes
) -> Iterator[tuple[int, int]]:
    """Yield the first and last offsets of a part; nothing where they cannot be told any more."""
    if part.picks:
        yield from _side_by_side(part.picks)
        return
    if part.of is None:
        yield part.begin, part.end - 1
        return
    kind, pulling = part.of
    if pulling.own != FOLDED_OWN:
        found = classes(topic, queue_id, part.begin, part.end, pulling)
        for first, behind in ranges_of(found, kind):
            yield part.begin + first, part.begin + behind - 1


def _side_by_side(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of ascending offsets that stand side by side."""
    first = last = -2
    for offset in offsets:
        if offset != last + 1:
            if first >= 0:
                yield first, last
            first = offset
        last = offset
    if first >= 0:
        yield first, last


def _subscriptions(pulling: Pulling | None) -> tuple[str, str]:
    """Return what the member asked for, and by what the broker filtered; "" where that is unknown."""
    if pulling is None or pulling.own == FOLDED_OWN:
        return "", ""
    return subscription_of(pulling.own or pulling.by), subscription_of(pulling.by)


def _without(
    ranges: Iterable[tuple[int, int]], singles: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield what is left of ranges (first, last) without some offsets, which are sorted."""
    for first, last in ranges:
        at = first
        for offset in singles[bisect_left(singles, first) : bisect_right(singles, last)]:
            if at < offset:
                yield at, offset - 1
            at = offset + 1
        if at <= last:
            yield at, last
