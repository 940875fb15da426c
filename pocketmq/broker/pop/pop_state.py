"""PopState: which messages are in flight, until when, and each group's next offset. No clock, file or socket.

1. A message in flight is not redelivered before its check point's deadline.
2. When a check point is due, its unacknowledged messages are redelivered: nothing is lost.
3. Messages acknowledged in time are never due.
4. An acknowledgement that arrives before its check point waits for it (a store written by an Apache broker
   has check points still in its timer); if there are too many, the oldest is dropped.
Owner: ReviveLog, which logs each step before it is made here.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from pocketmq.broker.pop.check_point import CheckPoint, CheckPointName
from pocketmq.remoting.transport.peer import Peer

EARLY_MAX = 10_000
# The heap is rebuilt when it is mostly check points that are done.
_STALE_MIN = 1_000


class GroupQueue(NamedTuple):
    """A queue as one group sees it."""

    group: str
    topic: str
    queue_id: int


class PopState:
    """Check points in flight, by name and by deadline; deadlines are monotonic ms."""

    def __init__(self) -> None:
        self.live: dict[CheckPointName, CheckPoint] = {}
        self._deadlines: list[tuple[int, int, CheckPoint]] = []
        self._count = 0
        self._early: OrderedDict[CheckPointName, set[int]] = OrderedDict()
        self.reached: dict[GroupQueue, int] = {}

    def __len__(self) -> int:
        """Return the number of check points in flight."""
        return len(self.live)

    # ------------------------------------------------------------ next offsets

    def next_offset(self, queue: GroupQueue, committed: int) -> int:
        """Return the first offset not handed out yet; -1 if unknown.

        committed: the group's stored offset, -1 for none, which lags behind.
        """
        return max(self.reached.get(queue, -1), committed)

    def begin(self, queue: GroupQueue, offset: int) -> None:
        """Note that the group pops the queue, from its stored offset on."""
        self.reached.setdefault(queue, offset)

    def is_popped(self, queue: GroupQueue) -> bool:
        """Return True if the group has asked for messages of the queue by popping."""
        return queue in self.reached

    def move(self, queue: GroupQueue, offset: int) -> None:
        """Set the group's next offset, behind what was handed out."""
        self.reached[queue] = offset

    def of_topic(self, group: str, topic: str) -> list[CheckPoint]:
        """Return a group's check points in flight of a topic. Scans everything."""
        return [
            point for name, point in self.live.items() if (name.group, name.topic) == (group, topic)
        ]

    def of_group(self, group: str) -> list[CheckPoint]:
        """Return a group's check points in flight. Scans everything."""
        return [point for name, point in self.live.items() if name.group == group]

    def held_by(self, peer: Peer) -> list[CheckPoint]:
        """Return the check points that a peer holds. Scans everything."""
        return [point for point in self.live.values() if point.holder is peer]

    def forget(self, group: str, topic: str) -> None:
        """Drop the next offsets of a group's topic."""
        for queue in [queue for queue in self.reached if queue[:2] == (group, topic)]:
            del self.reached[queue]

    # ------------------------------------------------------------ check points

    def get(self, name: CheckPointName) -> CheckPoint | None:
        """Return the check point while it is in flight."""
        return self.live.get(name)

    def knows(self, name: CheckPointName) -> bool:
        """Return True if a check point or early acknowledgements have this name."""
        return name in self.live or name in self._early

    def forget_early(self, name: CheckPointName) -> None:
        """Drop acknowledgements that came before any check point of this name."""
        self._early.pop(name, None)

    def out_until_ms(self, queue: GroupQueue, offset: int) -> int:
        """Return the wall time until which a message is invisible; 0 if not in flight. Scans everything."""
        group, topic, queue_id = queue
        return max(
            (
                point.revive_ms
                for name, point in self.live.items()
                if (name.group, name.topic, name.queue_id) == (group, topic, queue_id)
                and offset in point.unacked
            ),
            default=0,
        )

    def add(self, point: CheckPoint, deadline_ms: int) -> CheckPoint | None:
        """Put messages in flight until `deadline_ms`. Returns: the check point of the same name replaced by
        it.
        """
        old = self.live.get(point.name)
        for offset in self._early.pop(point.name, ()):
            point.ack(offset)
        if point.is_acked:
            self.live.pop(point.name, None)
            return old
        self.live[point.name] = point
        self.postpone(point, deadline_ms)
        if len(self._deadlines) > 2 * len(self.live) + _STALE_MIN:
            live = self.live
            self._deadlines = [e for e in self._deadlines if live.get(e[2].name) is e[2]]
            heapq.heapify(self._deadlines)
        return old

    def postpone(self, point: CheckPoint, deadline_ms: int) -> None:
        """Put a check point (back) in flight until `deadline_ms`."""
        self._count += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._count, point))

    def hasten(self, by_ms: int) -> None:
        """Bring every deadline nearer: for a test's clock that is turned while its monotonic time stands."""
        self._deadlines = [(at - by_ms, count, point) for at, count, point in self._deadlines]

    def ack(self, name: CheckPointName, offsets: Iterable[int]) -> CheckPoint | None:
        """Acknowledge messages. Returns: their check point; None if it is not in flight (invariant 4)."""
        point = self.live.get(name)
        if point is None:
            self._early.setdefault(name, set()).update(offsets)
            self._early.move_to_end(name)
            if len(self._early) > EARLY_MAX:
                self._early.popitem(last=False)
            return None
        for offset in offsets:
            point.ack(offset)
        if point.is_acked:
            del self.live[name]
        return point

    def due(self, now_ms: int, count_max: int) -> list[CheckPoint]:
        """Take check points past their deadline; they stay in flight until they are acknowledged."""
        found: list[CheckPoint] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms and len(found) < count_max:
            point = heapq.heappop(deadlines)[2]
            if self.live.get(point.name) is point:
                found.append(point)
        return found
