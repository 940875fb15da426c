"""Lags: how far each group is behind, for the metrics. A scrape has a bounded cost, for any number of queues.

1. A scrape and, while it has not seen all, each following second look at queues in turn, until LOOKS are used
   up: a queue that is open costs one, one that is not OPENING. So up to some thousand queues the figures
   are of the moment; of more, each is that of the last look at it.
2. A queue that is not open is looked at once, and again when its group has moved or queues were closed
   since. It is not kept open for that.
3. An offset beyond the end of its queue (a store that was rolled back) has no lag.
Owner: the broker, on its event loop.
"""

from dataclasses import dataclass

from pocketmq.broker.groups.consumer_offset import SEPARATOR
from pocketmq.broker.parts import Tables
from pocketmq.store import MessageStore
from pocketmq.store.read_store import Backlog

LOOKS = 8_192
OPENING = 32


@dataclass(slots=True)
class GroupLag:
    """A group in a topic at the last look. behind: by queue, those in which something waits."""

    offsets: dict[int, int]
    behind: dict[int, Backlog]
    closings: int

    @property
    def count(self) -> int:
        """Messages that wait."""
        return sum(each.end - each.at for each in self.behind.values())

    def age_ms(self, now_ms: int) -> int:
        """Of the oldest message that waits; 0: there is none, or that is not known."""
        known = [each.stored_ms for each in self.behind.values() if each.stored_ms > 0]
        return max(0, now_ms - min(known, default=now_ms))


class Lags:
    """rows: by (group, topic)."""

    def __init__(self, tables: Tables, store: MessageStore) -> None:
        self._tables = tables
        self._store = store
        self._left: list[str] = []
        self.rows: dict[tuple[str, str], GroupLag] = {}

    def refresh(self) -> None:
        """Look at queues that were not looked at in this turn; all looked at: begin the next turn."""
        if not self._left:
            self._left = list(self._tables.offsets.offsets)
            known = {
                (key.partition(SEPARATOR)[2], key.partition(SEPARATOR)[0]) for key in self._left
            }
            for gone in self.rows.keys() - known:
                del self.rows[gone]
        self.go_on()

    def go_on(self) -> None:
        """Once a second: what the last scrape has left."""
        looks = 0
        while self._left and looks < LOOKS:
            topic, _, group = self._left.pop().partition(SEPARATOR)
            looks += self._look(group, topic)

    def _look(self, group: str, topic: str) -> int:
        """Returns: what it cost."""
        tables, store = self._tables, self._store
        offsets = tables.offsets.of_topic(group, topic)
        if tables.groups.get(group) is None or tables.topics.get(topic) is None:
            self.rows.pop((group, topic), None)
            return 1
        closed = [each for each in offsets if not store.is_open(topic, each)]
        old = self.rows.get((group, topic))
        known = {}
        if old is not None and old.closings == store.closings:
            known = {
                each: old.behind.get(each)
                for each in closed
                if old.offsets.get(each) == offsets[each]
            }
        behind = {}
        for queue_id, offset in offsets.items():
            found = known[queue_id] if queue_id in known else store.backlog(topic, queue_id, offset)
            if found is not None and found.at < found.end:
                behind[queue_id] = found
        self.rows[group, topic] = GroupLag(offsets, behind, store.closings)
        return 1 + len(offsets) + OPENING * (len(closed) - len(known))
