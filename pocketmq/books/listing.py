"""Sums and lists of a queue's messages by their states. No I/O."""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence

from pocketmq.books.reckoning import Classes, InState, Reckoning
from pocketmq.books.runs import FOLDED_OWN
from pocketmq.books.sorting import Pulling, subscription_of
from pocketmq.model.balance import Balance, ListedMessages, State

LISTED_MAX = 100_000


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
    count_max: int,
) -> list[ListedMessages]:
    """Return the messages of parts in these states, until there are `count_max` ranges.

    queue: topic, broker, queue id; parts: all of the queue; classes: as Sorter.classes.
    """
    found: list[ListedMessages] = []
    singles = sorted(part.begin for part in parts if part.is_single)
    for part in parts:
        if part.state in states and len(found) < count_max:
            found += _rows(queue, part, singles, classes)
    return found


def _rows(
    queue: tuple[str, str, int], part: InState, singles: Sequence[int], classes: Classes
) -> Iterator[ListedMessages]:
    ranges = _ranges(queue[0], queue[2], part, classes)
    if not part.is_single:
        ranges = _without(ranges, singles)
    told = _subscriptions(part.pulling)
    for first, last in ranges:
        yield ListedMessages(
            *queue, first, last, part.state, part.cause, part.member, part.ms, *told
        )


def _ranges(
    topic: str, queue_id: int, part: InState, classes: Classes
) -> Iterator[tuple[int, int]]:
    """Yield the first and last offsets of a part; nothing where they cannot be told any more."""
    if part.of is None:
        yield part.begin, part.end - 1
        return
    kind, pulling = part.of
    if pulling.own == FOLDED_OWN:
        return
    found = classes(topic, queue_id, part.begin, part.end, pulling)
    if found is None:
        return
    mark, at = bytes((kind,)), found.find(kind)
    while at >= 0:
        end = at + len(found[at:]) - len(found[at:].lstrip(mark))
        yield part.begin + at, part.begin + end - 1
        at = found.find(kind, end)


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
