"""ProcessQueue: messages pulled from one queue and not consumed yet (S28 to S31, E4).

A snapshot of one queue in consumption: offset -> message in order of offset, whatever the order of arrival.
The offset to commit is the smallest one left, so no message in progress is ever skipped.

1. `_messages` holds what waits or is being consumed; `_order` is a heap of its offsets, in which offsets
   removed from `_messages` may remain until they reach the top.
2. Orderly consumption moves messages from `_messages` to `_taken` and back; count and size include both.
3. `remove` returns -1 if nothing was cached, one past the highest offset ever put if nothing is left, else
   the smallest offset left.
4. `held_pull` is the pull request that waits until enough messages have left (flow control).
5. A dropped queue is no longer this client's: nothing is committed for it any more.
Owner: the consumer's event loop. Source: ProcessQueue, RocketMQ 4.9.8.
"""

import heapq
from collections.abc import Iterable
from typing import Any

from pocketmq.model.message import MessageExt, Property

LOCK_LIVE_MS_MAX = 30_000
"""A lock at the broker that was not renewed for that long is not trusted any more."""
LOCK_INTERVAL_MS = 20_000
PULL_IDLE_MS_MAX = 120_000
"""A queue whose pull request has not been seen for that long is dropped and taken anew."""

_CONSUME_START = Property.CONSUME_START_TIME.value
_TIME_SIZE_MAX = 19


class ProcessQueue:
    """One queue in consumption.

    `last_*_ms` are monotonic, so that a jump of the wall clock neither expires a lock nor drops a queue.
    """

    __slots__ = (
        "_messages",
        "_offset_max",
        "_order",
        "_taken",
        "consuming",
        "dropped",
        "held_pull",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "locked",
        "message_count",
        "message_size",
        "try_unlock_times",
    )

    def __init__(self, now_ms: int) -> None:
        self._messages: dict[int, MessageExt] = {}
        self._order: list[int] = []
        self._taken: dict[int, MessageExt] = {}
        self._offset_max = -1
        self.message_count = 0
        self.message_size = 0
        self.dropped = False
        self.held_pull: object | None = None
        self.locked = False
        self.consuming = False
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms = now_ms
        self.try_unlock_times = 0

    def __repr__(self) -> str:
        state = " dropped" if self.dropped else ""
        return f"<ProcessQueue {self.message_count} messages {self.message_size} bytes{state}>"

    # ------------------------------------------------------------ both ways of consuming

    def put(self, messages: list[MessageExt]) -> bool:
        """Cache pulled messages; body bytes are counted once for each offset.

        Returns: whether an orderly consumer must be started on this queue (none is running yet).
        """
        cached, order = self._messages, self._order
        size = 0
        count = 0
        last = self._offset_max
        for message in messages:
            offset = message.queue_offset
            if offset > last:
                # Behind all others: the heap stays one.
                last = offset
                order.append(offset)
            elif offset in cached:
                cached[offset] = message
                continue
            else:
                heapq.heappush(order, offset)
            cached[offset] = message
            count += 1
            size += len(message.body)
        self._offset_max = last
        self.message_count += count
        self.message_size += size
        if cached and not self.consuming:
            self.consuming = True
            return True
        return False

    def remove(self, messages: Iterable[MessageExt], now_ms: int) -> int:
        """Remove consumed messages; returns by invariant 3."""
        self.last_consume_ms = now_ms
        cached = self._messages
        if not cached:
            return -1
        before, size, take = len(cached), 0, cached.pop
        for message in messages:
            done = take(message.queue_offset, None)
            if done is not None:
                size += len(done.body)
        self.message_size -= size
        self.message_count -= before - len(cached)
        if not cached:
            # The heap holds nothing but what has left.
            self._order.clear()
            return self._offset_max + 1
        first = self._first()
        assert first is not None
        return first

    def _first(self) -> int | None:
        """Return the smallest cached offset (invariant 1)."""
        order, cached = self._order, self._messages
        while order:
            if order[0] in cached:
                return order[0]
            heapq.heappop(order)
        return None

    def _last(self) -> int | None:
        if not self._messages:
            return None
        return self._offset_max if self._offset_max in self._messages else max(self._messages)

    @property
    def first_offset(self) -> int | None:
        """Return the smallest cached offset; None if nothing is cached."""
        return self._first()

    def span_exceeds(self, span_max: int) -> bool:
        """Return True if the distance between smallest and largest cached offset exceeds the limit."""
        first = self._first()
        if first is None or self._offset_max - first <= span_max:
            return False
        last = self._last()
        return last is not None and last - first > span_max

    @property
    def max_span(self) -> int:
        """Return largest minus smallest cached offset; 0 if nothing is cached."""
        first, last = self._first(), self._last()
        return 0 if first is None or last is None else last - first

    def oldest_expired(self, now_ms: int, consume_timeout_ms: int) -> MessageExt | None:
        """Return the first message if its listener has processed it for longer than the limit, else None.

        now_ms by the wall clock, like the CONSUME_START_TIME that the message carries.
        """
        first = self._first()
        if first is None:
            return None
        message = self._messages[first]
        # Before its listener begins, it is whatever its producer wrote there.
        started = message.properties.get(_CONSUME_START, "")
        if not started.isdecimal() or now_ms - int(started[:_TIME_SIZE_MAX]) <= consume_timeout_ms:
            return None
        return message

    def pull_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_IDLE_MS_MAX

    def lock_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_lock_ms > LOCK_LIVE_MS_MAX

    def clear(self) -> None:
        """Drop everything that is cached."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.message_count = self.message_size = 0
        self._offset_max = -1

    # ------------------------------------------------------------ orderly

    def take(self, count_max: int, now_ms: int) -> list[MessageExt]:
        """Take the next messages in order; they stay taken until commit, rollback or take_back.

        An empty list ends the turn: the next put starts a consumer again.
        """
        self.last_consume_ms = now_ms
        found: list[MessageExt] = []
        while len(found) < count_max:
            first = self._first()
            if first is None:
                break
            message = self._messages.pop(first)
            self._taken[first] = message
            found.append(message)
        if not found:
            self.consuming = False
        return found

    def commit(self) -> int:
        """Remove the taken messages as consumed. Returns: the next offset, or -1 if nothing was taken."""
        if not self._taken:
            return -1
        offset = max(self._taken)
        self.message_count -= len(self._taken)
        self.message_size -= sum(len(message.body) for message in self._taken.values())
        self._taken.clear()
        return offset + 1

    def take_back(self, messages: Iterable[MessageExt]) -> None:
        """Put taken messages back, to be consumed again."""
        for message in messages:
            offset = message.queue_offset
            self._taken.pop(offset, None)
            if offset not in self._messages:
                self._messages[offset] = message
                heapq.heappush(self._order, offset)

    def take_all_back(self) -> None:
        """Put all taken messages back."""
        self.take_back(list(self._taken.values()))

    @property
    def has_waiting(self) -> bool:
        """Return True if there are messages not taken yet."""
        return bool(self._messages)

    def running_info(self, wall_ahead_ms: int) -> dict[str, Any]:
        """Return ProcessQueueInfo of GET_CONSUMER_RUNNING_INFO, except for the committed offset.

        wall_ahead_ms: the wall clock minus the monotonic one, to show times of day.
        """
        return {
            "cachedMsgCount": len(self._messages),
            "cachedMsgMaxOffset": self._last() or 0,
            "cachedMsgMinOffset": self._first() or 0,
            "cachedMsgSizeInMiB": self.message_size >> 20,
            # RocketMQ's own spelling.
            "droped": self.dropped,
            "lastConsumeTimestamp": self.last_consume_ms + wall_ahead_ms,
            "lastLockTimestamp": self.last_lock_ms + wall_ahead_ms,
            "lastPullTimestamp": self.last_pull_ms + wall_ahead_ms,
            "locked": self.locked,
            "transactionMsgCount": len(self._taken),
            "transactionMsgMaxOffset": max(self._taken, default=0),
            "transactionMsgMinOffset": min(self._taken, default=0),
            "tryUnlockTimes": self.try_unlock_times,
        }
