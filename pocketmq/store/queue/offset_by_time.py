"""Queue offsets by store time. Source: ConsumeQueue.getOffsetInQueueByTime, 4.9.7 and 5.5.0; disk.md 15.

    NEAREST  4.9: an entry of exactly that time, else the nearer neighbour, the earlier one on a tie
    LOWER    5.x: the first entry at or behind the time; max_offset when all are earlier
    UPPER    5.x: the last entry at or before the time; min_offset when all are later

RocketMQ 4.9 picks the queue file by its modification time, and answers from a neighbouring file if that is
off, as after a copy. Here the file is picked by the store times of its records.
"""

from collections.abc import Callable
from typing import Literal

from pocketmq.files.layout import ENTRY_SIZE, partition
from pocketmq.store.queue.consume_queue import ConsumeQueue

Boundary = Literal["NEAREST", "LOWER", "UPPER"]


def offset_by_time(
    queue: ConsumeQueue,
    low: int,
    time_ms: int,
    boundary: Boundary,
    store_ms: Callable[[int], int],
) -> int:
    """Args: low: the queue's min offset; store_ms: store time at an offset, -1 without a record."""
    high = queue.max_offset
    if high <= low or store_ms(high - 1) < 0:
        # No record of the queue is left.
        return low
    if boundary == "LOWER":
        return partition(low, high, lambda offset: store_ms(offset) >= time_ms)
    if boundary == "UPPER":
        return max(low, partition(low, high, lambda offset: store_ms(offset) > time_ms) - 1)
    return _nearest(queue, low, high, time_ms, store_ms)


def _nearest(
    queue: ConsumeQueue, low: int, high: int, time_ms: int, store_ms: Callable[[int], int]
) -> int:
    first = partition(low, high, lambda offset: store_ms(offset) >= time_ms)
    if first == high:
        return high - 1
    found_ms = store_ms(first)
    if found_ms == time_ms:
        return _exact(queue, low, high, first, time_ms, store_ms)
    if first == low:
        return low
    before_ms = store_ms(first - 1)
    if before_ms < 0:
        return first
    return first if time_ms - before_ms > found_ms - time_ms else first - 1


def _exact(
    queue: ConsumeQueue,
    low: int,
    high: int,
    first: int,
    time_ms: int,
    store_ms: Callable[[int], int],
) -> int:
    """Return, of several entries with the same time, the one that RocketMQ's binary search hits first."""
    per_file = queue.files.file_size // ENTRY_SIZE
    base = first // per_file * per_file
    left, right = max(low, base) - base, min(high, base + per_file) - base - 1
    while right >= left:
        middle = (left + right) // 2
        middle_ms = store_ms(base + middle)
        if middle_ms == time_ms:
            return base + middle
        if middle_ms > time_ms:
            right = middle - 1
        else:
            left = middle + 1
    return first
