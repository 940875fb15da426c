"""Queue allocation: which member of a group gets which queues, as clients compute it themselves.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle, RocketMQ 4.9.7; wire.md 4.4.
The broker needs the result twice: to tell which queues a member with another subscription holds (guard)
and to hand out shares itself (QUERY_ASSIGNMENT).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def averagely(queues: Sequence[T], member_count: int, index: int) -> list[T]:
    """Allocate contiguous shares; the first members get one more if it does not divide evenly (E1).

    >>> [averagely(range(6), 4, index) for index in range(4)]
    [[0, 1], [2, 3], [4], [5]]
    >>> [averagely(range(2), 3, index) for index in range(3)]
    [[0], [1], []]
    """
    if not 0 <= index < member_count:
        return []
    share, more = divmod(len(queues), member_count)
    start = index * share + min(index, more)
    return list(queues[start : start + share + (1 if index < more else 0)])


def averagely_by_circle(queues: Sequence[T], member_count: int, index: int) -> list[T]:
    """Allocate one queue to each in turn.

    >>> averagely_by_circle(range(6), 4, 1)
    [1, 5]
    """
    if not 0 <= index < member_count:
        return []
    return list(queues[index::member_count])


# The strategies by the names that QUERY_ASSIGNMENT uses.
STRATEGIES: dict[str, Callable[[Sequence[T], int, int], list[T]]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
}


def utf16_order(text: str) -> bytes:
    """Return the key by which Java sorts strings: UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")
