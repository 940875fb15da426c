"""The selection of a read, and the work of one task: strings and numbers only, since it travels to
executors.
"""

import pickle
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pocketmq.bulk.offsets import Positions, QueueKey
from pocketmq.bulk.store import Root, StoreIdentity
from pocketmq.model.names import is_system_topic

MIB = 1 << 20


@dataclass(frozen=True)
class Topics:
    """Which queues to read: names, a regular expression, or exact queues; none given means every topic.

    System topics are left out unless they are named or `system` is true.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    system: bool = False

    def has(self, topic: str) -> bool:
        """Return True if any queue of the topic may be wanted."""
        if self.assign is not None:
            return topic in self.assign
        if self.names:
            return topic in self.names
        if is_system_topic(topic) and not self.system:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None

    def has_queue(self, key: QueueKey) -> bool:
        """Return True if this queue is wanted."""
        if self.assign is not None:
            return key.queue_id in self.assign.get(key.topic, {}).get(key.broker_name, ())
        return self.has(key.topic)

    @property
    def option(self) -> str:
        """Return the option that names the topics, for errors."""
        return "subscribe" if self.assign is None else "assign"

    def named(self) -> Iterable[str]:
        """Return the topics that must exist."""
        return self.assign if self.assign is not None else self.names


@dataclass(frozen=True)
class Filters:
    """Conditions on rows. Empty: all. Times: start_ms <= storeTimestamp < end_ms."""

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def any(self) -> bool:
        return bool(self.tags or self.keys) or self.start_ms is not None or self.end_ms is not None


#: Bounds of a queue that reaches over the ranges of a partition. Numbers would make up most of what travels.
BEFORE = -1
BEHIND = 1 << 62


@dataclass(frozen=True)
class QueueRange:
    """Offsets start <= o < end of one queue.

    In a partition start may be BEFORE: an entry of the queue is before the ranges; and end BEHIND: one is
    behind them. The ranges are the bounds then.
    """

    topic: str
    queue_id: int
    start: int
    end: int
    batch: bool = False


@dataclass(frozen=True)
class Partition:
    """Work for one task. ranges: (first byte, end) in the commit log, each within one file.

    walk: there is no index: the ranges are walked record by record. `queues` says what is wanted, or
    `topics` and the positions where no queue is known. dense: most bytes of the ranges are wanted.
    identity: of the store that the plan was made for. by_log: the ranges begin at records and hold few of
    each queue, so the queues need not be read. renewed: (topic, queue id, position) of queues that were
    created again: what is before belongs to another. files: (first byte, size) of the files of an archive,
    which no task has to list.
    """

    root: Root
    ranges: tuple[tuple[int, int], ...]
    queues: tuple[QueueRange, ...] = ()
    walk: bool = False
    dense: bool = True
    topics: Topics = field(default_factory=Topics)
    starting: Positions = field(default_factory=Positions)
    ending: Positions = field(default_factory=lambda: Positions("latest"))
    identity: StoreIdentity | None = None
    by_log: bool = False
    renewed: tuple[tuple[str, int, int], ...] = ()
    files: tuple[tuple[int, int], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # Each of thousands of partitions names thousands of queues: 2,000 were 66 KB.
        return self.__dict__ | {"queues": _packed(self.queues)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"queues": _unpacked(state["queues"])})


def _packed(queues: Sequence[QueueRange]) -> bytes:
    """Pack queues column by column, compressed; nothing for none."""
    if not queues:
        return b""
    topics = list(dict.fromkeys(q.topic for q in queues))
    numbers = {topic: n for n, topic in enumerate(topics)}
    table = np.array(
        [(numbers[q.topic], q.queue_id, q.start, q.end - q.start, q.batch) for q in queues],
        np.int64,
    )
    # Neighbours are alike; bytes of one weight stand together.
    planes = table.T.copy().view(np.uint8).reshape(-1, 8).T.tobytes()
    return zlib.compress(pickle.dumps((len(queues), planes, "\n".join(topics))), 9)


def _unpacked(packed: bytes) -> tuple[QueueRange, ...]:
    if not packed:
        return ()
    count, planes, text = pickle.loads(zlib.decompress(packed))
    topics = text.split("\n")
    table = np.frombuffer(planes, np.uint8).reshape(8, -1).T.copy().view(np.int64).reshape(5, count)
    return tuple(
        QueueRange(topics[topic], queue_id, start, start + length, bool(batch))
        for topic, queue_id, start, length, batch in table.T.tolist()
    )


@dataclass(frozen=True)
class Sizes:
    """How to divide the work.

    row_bytes: read of each record; 0: all of it. Where less is read, partitions hold more records, as long
    as there are `tasks` of them, which can run at once.
    """

    partition_bytes: int = 256 * MIB
    partitions_min: int = 1
    batch_bytes: int = 8 * MIB
    row_bytes: int = 0
    tasks: int = 1
