"""DeletedQueues: queues that were deleted while the log still has their records. PocketMQ only.

    deletedqueues     a ConfigJournal; a row: [topic, queue id, position]; queue -1: the topic as a whole

1. Records of that queue before `position` get no entry again. Else each start would bring a deleted topic
   back, and its messages among those of a topic that was made again under the name.
2. A row is written before the queue's files are deleted, and the next start deletes what a kill left of them.
   It is not flushed: after a power cut, a topic that was deleted just before may come back.
3. A message that waits for its topic elsewhere (delays, timers, half messages) is one of the deleted topic if
   it was stored before the topic as a whole was deleted.
4. No position is beyond the end of the log: what is stored there next is not deleted. Where the log begins
   behind a position, the row goes.
Owner: ConsumeQueueTable.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from typing import Any

from pocketmq.store.config_journal import ConfigJournal
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

Key = tuple[str, int]
_WHOLE = -1


class DeletedQueues:
    """The rows of one folder."""

    def __init__(self, root: str) -> None:
        self._journal = ConfigJournal(os.path.join(root, "deletedqueues"))
        self._ends: dict[Key, int] = {}

    def load(self) -> None:
        """Read the rows. Raises: OSError."""
        for topic, queue_id, position in self._journal.load():
            self._ends[topic, queue_id] = position

    def has(self, topic: str, queue_id: int, position: int) -> bool:
        """Return True if the record at a position is of a queue that was deleted since."""
        return position < self._ends.get((topic, queue_id), 0)

    def has_waiting(self, topic: str, position: int) -> bool:
        """Return True if the record at a position waits for a topic that was deleted since (invariant 3)."""
        return self.has(topic, _WHOLE, position)

    def had(self, topic: str, queue_id: int) -> bool:
        """Return True if a queue of that name was deleted."""
        return (topic, queue_id) in self._ends

    def names(self) -> list[Key]:
        """Return topic and queue id of all rows."""
        return list(self._ends)

    def note(self, queues: Iterable[ConsumeQueue]) -> None:
        """Note that these queues are about to be deleted, if the disk lets us."""
        self.add([each.topic, each.queue_id, each.max_position] for each in queues)

    def note_topic(self, topic: str, end: int) -> None:
        """Note that a topic is about to be deleted, with the log's end."""
        self.add([[topic, _WHOLE, end]])

    def add(self, rows: Iterable[Any]) -> bool:
        """Add rows, of a master's, too; False if all were known. Raises: TypeError, ValueError."""
        new = {(str(topic), int(queue_id)): int(end) for topic, queue_id, end in rows}
        new = {key: end for key, end in new.items() if end > self._ends.get(key, 0)}
        if new:
            self._ends.update(new)
            try:
                self._journal.append(_rows(new), flush=False)
            except OSError as error:
                log.warning(
                    "cannot note that queues are deleted: a restart may bring them back reason=%s",
                    error,
                )
        return bool(new)

    def rows(self) -> list[list[str | int]]:
        """Return all rows."""
        return _rows(self._ends)

    def settle(self, begin: int, end: int) -> None:
        """Apply invariant 4 to a log from `begin` to `end`. Raises: OSError."""
        kept = {key: min(each, end) for key, each in self._ends.items() if begin < min(each, end)}
        if kept == self._ends:
            return
        self._ends = kept
        # First: a row that says too much would cost messages, one that is missing brings some back.
        self._journal.remove()
        with contextlib.suppress(OSError):
            if kept:
                self._journal.append(_rows(kept))


def _rows(ends: dict[Key, int]) -> list[list[str | int]]:
    return [[topic, queue_id, end] for (topic, queue_id), end in ends.items()]
