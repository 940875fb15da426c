"""Lags: how far each group lags, for the metrics. The cost of a scrape is bounded for any number of queues.

1. A scrape looks at queues in turn until LOOKS are used up, twice; so does each following second,
   once, until all were seen: an open queue costs one, a closed one OPENING. Up to some thousand queues the
   figures are current; beyond that, each is as of the last look. Rows whose offsets were deleted are dropped
   at the same pace.
2. A closed queue is looked at once, and again when its group has moved or queues were closed since. It is
   not kept open for this.
3. An offset beyond the end of its queue (a store that was rolled back) has no lag.
Owner: the broker, on its event loop.
"""

from dataclasses import dataclass

from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.parts import Tables
from pocketmq.store import MessageStore
from pocketmq.store.reads import Backlog

LOOKS = 4_096
OPENING = 32


@dataclass(slots=True)
class GroupLag:
    """A group in a topic, as of the last look. behind: the queues in which messages wait."""

    offsets: dict[int, int]
    behind: dict[int, Backlog]
    closings: int

    @property
    def count(self) -> int:
        """Return the number of messages that wait."""
        return sum(each.end - each.at for each in self.behind.values())

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the oldest waiting message; 0 if absent or unknown."""
        known = [each.stored_ms for each in self.behind.values() if each.stored_ms > 0]
        return max(0, now_ms - min(known, default=now_ms))


class Lags:
    """rows: by (group, topic)."""

    def __init__(self, tables: Tables, store: MessageStore) -> None:
        self._tables = tables
        self._store = store
        self._left: list[str] = []
        self._unchecked: list[tuple[str, str]] = []
        self.rows: dict[tuple[str, str], GroupLag] = {}

    def refresh(self) -> None:
        """Look at queues not yet seen in this round; once all were, begin the next round."""
        if not self._left:
            self._left = list(self._tables.offsets.offsets)
            self._unchecked = list(self.rows)
        self.go_on()

    def go_on(self) -> None:
        """Continue what the last scrape left over; called once a second."""
        self._drop()
        looks = 0
        while self._left and looks < LOOKS:
            topic, _, group = self._left.pop().partition(SEPARATOR)
            looks += self._look(group, topic)

    def _drop(self) -> None:
        """Drop rows whose offsets were deleted."""
        offsets = self._tables.offsets.offsets
        for group, topic in self._unchecked[-LOOKS:]:
            if f"{topic}{SEPARATOR}{group}" not in offsets:
                self.rows.pop((group, topic), None)
        del self._unchecked[-LOOKS:]

    def _look(self, group: str, topic: str) -> int:
        """Update one group and topic. Returns: the cost."""
        tables, store = self._tables, self._store
        offsets = tables.offsets.of_topic(group, topic)
        exists = tables.groups.get(group) is not None and tables.topics.get(topic) is not None
        if not offsets or not exists:
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
