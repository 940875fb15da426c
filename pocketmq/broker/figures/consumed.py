"""Consumed: how many messages each group has consumed, and at which rate. Ours.

A message that was pulled may still wait in a member that hangs: RocketMQ's GROUP_GET_NUMS counts it. Here a
message counts once its group is done with it:

    a pull consumer     when the committed offset moves past it
    an isolated group   when the offset that all its sub-groups have passed does
    a pop consumer      when it is acknowledged, or passed over by the filter

1. Offsets that an administrator sets count nothing. The first offset of a queue counts from where its group
   was seen to begin (groups/starts.py), else nothing.
2. The rate is over the last minute: from the newest point that is at least SPAN_MS old, or from where a group
   began to move; over LEAST_MS at least. A group that does not move has no points.
3. A commit tells of the COMMIT_MS before it: its messages count from then on, and until the next one is due
   the rate is that up to the last one. Else it would be wrong for a minute after each start of a broker.
Owner: the table of offsets.
"""

from collections import deque

from pocketmq.remoting.clock import Clock, SystemClock

GROUP_CONSUMED_NUMS = "GROUP_CONSUMED_NUMS"
STEP_MS = 10_000
SPAN_MS = 60_000
LEAST_MS = 1_000
# How often members commit: persistConsumerOffsetInterval of the Java client, and ours.
COMMIT_MS = 5_000
_LATE_MS = 1_000


class Consumed:
    """counts: by `TOPIC@GROUP`, since the broker started.

    >>> from pocketmq.remoting.clock import ManualClock
    >>> clock = ManualClock()
    >>> consumed = Consumed(clock)
    >>> consumed.add("T@g", 50, over_ms=COMMIT_MS)
    >>> consumed.rate("T@g")
    10.0
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.counts: dict[str, int] = {}
        # Of the groups that moved within SPAN_MS: (monotonic ms, count).
        self._points: dict[str, deque[tuple[int, int]]] = {}
        # Of those that commit: when they last did.
        self._commits: dict[str, int] = {}
        self._next_ms = self._clock.monotonic_ms() + STEP_MS

    def add(self, key: str, count: int, *, over_ms: int = 0) -> None:
        """Count messages. over_ms: how long before now the first of them may have been consumed."""
        old = self.counts.get(key, 0)
        now_ms = self._clock.monotonic_ms() if over_ms or key not in self._points else 0
        if key not in self._points:
            self._points[key] = deque([(now_ms - over_ms, old)])
        if over_ms:
            self._commits[key] = now_ms
        self.counts[key] = old + count

    def _known_ms(self, key: str, now_ms: int) -> int:
        """Return up to when the count of a group that moves is known (invariant 3)."""
        committed_ms = self._commits.get(key)
        is_due = committed_ms is None or now_ms - committed_ms > COMMIT_MS + _LATE_MS
        return now_ms if committed_ms is None or is_due else committed_ms

    def in_minute(self, key: str) -> tuple[int, int]:
        """Return the messages of the last minute, and over how many ms they were counted."""
        points = self._points.get(key)
        if points is None:
            return 0, SPAN_MS
        began_ms, count = points[0]
        ms = max(LEAST_MS, self._known_ms(key, self._clock.monotonic_ms()) - began_ms)
        return self.counts[key] - count, ms

    def rate(self, key: str) -> float:
        """Return messages a second over the last minute."""
        count, ms = self.in_minute(key)
        return count * 1_000 / ms

    def forget(self, key: str) -> None:
        """Drop a group's topic."""
        self.counts.pop(key, None)
        self._points.pop(key, None)
        self._commits.pop(key, None)

    def tick(self) -> None:
        """Note where the moving groups are; called once a second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + STEP_MS
        for key, points in list(self._points.items()):
            points.append((self._known_ms(key, now_ms), self.counts[key]))
            while len(points) > 1 and points[1][0] <= now_ms - SPAN_MS:
                points.popleft()
            if points[0][1] == points[-1][1] and points[0][0] <= now_ms - SPAN_MS:
                del self._points[key]
                self._commits.pop(key, None)
