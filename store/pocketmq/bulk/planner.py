"""From a selection to partitions: which ranges of which commit log files, and which queues in them.

A partition is a set of ranges of the log, each inside one file, plus the queues wanted: reading goes through
the log once, in the order of the disk, whatever number of queues there is (one queue at a time would read the
whole log once per queue). Partitions hold strings and numbers only and go to executors as they are.
"""

import pickle
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from pocketmq.bulk.bounds import FileBounds
from pocketmq.bulk.offsets import (
    LossRule,
    Offsets,
    Positions,
    QueueKey,
    each,
    ending_offset,
    lookup,
    starting_offset,
    store_at,
)
from pocketmq.bulk.store import Identity, Root, Store
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.names import is_system_topic

MIB = 1 << 20


@dataclass(frozen=True)
class Topics:
    """Which queues: names, a regular expression, or exact queues; nothing named means every topic.

    System topics are left out unless they are named or `system` is true.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None
    system: bool = False

    def has(self, topic: str) -> bool:
        """Whether any queue of the topic may be wanted."""
        if self.assign is not None:
            return topic in self.assign
        if self.names:
            return topic in self.names
        if is_system_topic(topic) and not self.system:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None

    def has_queue(self, key: QueueKey) -> bool:
        """Whether this queue is wanted."""
        if self.assign is not None:
            return key.queue_id in self.assign.get(key.topic, {}).get(key.broker_name, ())
        return self.has(key.topic)

    def named(self) -> Iterable[str]:
        """Topics that must exist."""
        return self.assign if self.assign is not None else self.names


@dataclass(frozen=True)
class Filters:
    """Rows wanted among those of the queues. Empty: all. Times: start_ms <= storeTimestamp < end_ms."""

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def any(self) -> bool:
        return bool(self.tags or self.keys) or self.start_ms is not None or self.end_ms is not None


@dataclass(frozen=True)
class QueueRange:
    """Offsets start <= o < end of one queue."""

    topic: str
    queue_id: int
    start: int
    end: int
    batch: bool = False


@dataclass(frozen=True)
class Partition:
    """Work for one task. ranges: (first byte, end) in the commit log, each within one file.

    walk: there is no index to go by: the ranges are walked record by record. `queues` decides what is wanted,
    or `topics` and the positions where no queue is known.
    dense: most bytes of the ranges are wanted. identity: of the store that the plan was made with.
    by_log: the ranges begin at records and hold few of each queue, so the queues need not be looked into.
    renewed: (topic, queue id, position) of queues that were made again: what lies before is another's.
    """

    root: Root
    ranges: tuple[tuple[int, int], ...]
    queues: tuple[QueueRange, ...] = ()
    walk: bool = False
    dense: bool = True
    topics: Topics = field(default_factory=Topics)
    starting: Positions = field(default_factory=Positions)
    ending: Positions = field(default_factory=lambda: Positions("latest"))
    identity: Identity | None = None
    by_log: bool = False
    renewed: tuple[tuple[str, int, int], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # Each of thousands of partitions names thousands of queues: 2,000 were 66 KB.
        return self.__dict__ | {"queues": _packed(self.queues)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"queues": _unpacked(state["queues"])})


def _packed(queues: Sequence[QueueRange]) -> bytes:
    """Queues column by column, compressed; nothing for none."""
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
    """How work is cut."""

    partition_bytes: int = 256 * MIB
    partitions_min: int = 1
    batch_bytes: int = 8 * MIB


class Planner:
    """Plans reads of some stores as they are now."""

    def __init__(
        self, roots: Sequence[Root], topics: Topics, loss: LossRule, *, must_exist: bool = True
    ) -> None:
        """must_exist: raises IllegalArgument for a named topic that is not there."""
        self.loss = loss
        self.topics = topics
        self.stores = [Store(root) for root in roots]
        self._brokers = {root.broker_name for root in roots}
        self.walked = [s for s in self.stores if s.log_files and not s.has_queues()]
        indexed = [s for s in self.stores if s not in self.walked]
        self.bounds: dict[QueueKey, FileBounds] = {}
        for store in indexed:
            for queue in store.queues(topics.has):
                key = QueueKey(queue.topic, store.root.broker_name, queue.queue_id)
                if topics.has_queue(key):
                    self.bounds[key] = FileBounds(store, queue, loss)
            if store.was_not_stopped:
                self._look_behind_the_index(store)
        if must_exist:
            self._check_names()

    def _look_behind_the_index(self, store: Store) -> None:
        # Imports the decoder, which no other plan needs.
        from pocketmq.bulk.unindexed import find_tails, is_held

        if is_held(store):
            return
        name = store.root.broker_name
        found = {(k.topic, k.queue_id): b for k, b in self.bounds.items() if b.store is store}
        find_tails(
            store,
            found,
            lambda topic, queue_id: self.topics.has_queue(QueueKey(topic, name, queue_id)),
            self.loss,
        )
        self.bounds.update({b.key: b for b in found.values()})

    def _check_names(self) -> None:
        present = {key.topic for key in self.bounds}
        missing = [t for t in self.topics.named() if t not in present]
        if missing and not self.walked:
            roots = ", ".join(s.root.path for s in self.stores)
            raise IllegalArgument(
                f"subscribe: there is no topic {', '.join(map(repr, missing))} in {roots}; "
                f"{_some_topics(self.stores)}"
            )

    def starts(self, wanted: Positions) -> Offsets:
        """Where each queue begins."""
        wanted = wanted.of_brokers(self._brokers)
        self._check_known(wanted, "startingOffsets")
        result: Offsets = {}
        for key, bounds in self.bounds.items():
            store_at(result, key, starting_offset(bounds, wanted, self.loss))
        return result

    def ends(self, wanted: Positions) -> Offsets:
        """Where each queue ends, not included."""
        wanted = wanted.of_brokers(self._brokers)
        self._check_known(wanted, "endingOffsets")
        result: Offsets = {}
        for key, bounds in self.bounds.items():
            store_at(result, key, ending_offset(bounds, wanted, self.loss))
        return result

    def _check_known(self, wanted: Positions, option: str) -> None:
        if self.walked:
            return
        for key, offset in each(wanted.offsets or {}):
            if key not in self.bounds and offset >= 0:
                self.loss.lost(
                    f"{option} names topic {key.topic}, broker {key.broker_name}, queue "
                    f"{key.queue_id}, which is not there or not selected"
                )

    def partitions(self, starts: Offsets, ends: Offsets, sizes: Sizes) -> list[Partition]:
        """Partitions that hold the offsets starts <= o < ends of all queues."""
        work = [
            w
            for store in self.stores
            if (w := _StoreWork.of(store, self.bounds, starts, ends)) is not None
        ]
        total = sum(w.bytes_estimate for w in work)
        step = min(sizes.partition_bytes, max(1, -(-total // max(1, sizes.partitions_min))))
        return [p for w in work for p in w.cut(step)]

    def walk_partitions(self, starting: Positions, ending: Positions) -> list[Partition]:
        """One partition a file for the stores without queues."""
        if self.walked:
            starting = starting.of_brokers(self._brokers)
            ending = ending.of_brokers(self._brokers)
        for store in self.walked:
            for first, end in store.spans():
                if store.log_file_of(first) is None:
                    reason = (
                        f"the commit log has no file for {end - first} bytes between two others"
                    )
                    self.loss.lost(reason, store.missing_file(first), first)
        return [
            Partition(
                store.root,
                ((file.first, file.first + file.size),),
                walk=True,
                topics=self.topics,
                starting=starting,
                ending=ending,
                identity=identity,
            )
            for store in self.walked
            for identity in (store.identity(),)
            for file in store.log_files
        ]


def _some_topics(stores: Sequence[Store]) -> str:
    names = sorted({q.topic for s in stores for q in s.queues(lambda t: not is_system_topic(t))})
    if not names:
        return "no topic has a queue there"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return "the topics are " + ", ".join(names[:10]) + more


# Looks into the index files of a store, to see where in the log its wanted records are.
_SAMPLES = 4096
_SAMPLES_MIN = 2
_SAMPLES_MAX = 256
# Looking into a queue costs as much as walking over that many records; fewer queues are no burden.
_RECORDS_A_LOOK = 150
_MANY_QUEUES = 64
# Queues that are asked for a record near a cut.
_ASKED_FOR_CUTS = 4


class _StoreWork:
    """What is to be read from one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.identity = store.identity()
        # (queue, first byte, end of its last record)
        self.queues: list[tuple[QueueRange, int, int]] = []
        self.largest: list[tuple[float, FileBounds]] = []
        self.records = 0
        # What only the log knows, in the same form.
        self.behind: list[tuple[QueueRange, int, int]] = []
        # (first byte, end, bytes of wanted records), of all queues.
        self.segments: list[tuple[int, int, float]] = []

    @property
    def bytes_estimate(self) -> int:
        return int(sum(size for _, _, size in self.segments))

    @classmethod
    def of(
        cls,
        store: Store,
        bounds: Mapping[QueueKey, FileBounds],
        starts: Offsets,
        ends: Offsets,
    ) -> "_StoreWork | None":
        work = cls(store)
        own = [(key, one) for key, one in bounds.items() if one.store is store]
        samples = max(_SAMPLES_MIN, min(_SAMPLES_MAX, _SAMPLES // max(1, len(own))))
        for key, one in own:
            start, end = lookup(starts, key), lookup(ends, key)
            if start is None or end is None or start >= end:
                continue
            if end > one.indexed_end:
                begin = max(start, one.indexed_end)
                queue = QueueRange(key.topic, key.queue_id, begin, end)
                work.behind.append((queue, *one.span_behind))
                end = one.indexed_end
            low, high = one.indices(start, end)
            if low >= high:
                continue
            found = one.segments(low, high, samples)
            work.segments += found
            queue = QueueRange(key.topic, key.queue_id, start, end, one.queue.batch)
            work.queues.append((queue, found[0][0], found[-1][1]))
            work.records += high - low
            work.remember(high - low, one)
        return work if work.queues or work.behind else None

    def remember(self, entries: int, bounds: FileBounds) -> None:
        """Keeps the longest queues: near any place of the log they have a record."""
        self.largest.append((entries, bounds))
        if len(self.largest) > 2 * _ASKED_FOR_CUTS:
            self.largest.sort(key=lambda one: one[0], reverse=True)
            del self.largest[_ASKED_FOR_CUTS:]

    def cut(self, step: int) -> list[Partition]:
        """Partitions of about `step` wanted bytes each; a range never crosses a file."""
        return self._cut_indexed(step) + self._cut_behind()

    def _cut_behind(self) -> list[Partition]:
        """One partition a file: a walk begins at a record."""
        if not self.behind:
            return []
        low = min(first for _, first, _ in self.behind)
        high = max(end for _, _, end in self.behind)
        queues = tuple(q for q, _, _ in self.behind)
        ranges = ((max(low, first), min(high, end)) for first, end in self.store.spans())
        return [
            Partition(self.store.root, ((at, end),), queues, walk=True, identity=self.identity)
            for at, end in ranges
            if at < end
        ]

    def _cut_indexed(self, step: int) -> list[Partition]:
        if not self.queues:
            return []
        cuts = self._cuts(max(1, -(-self.bytes_estimate // step)))
        by_log = len(self.queues) >= _MANY_QUEUES and not any(q.batch for q, _, _ in self.queues)
        if by_log:
            cuts = sorted({cuts[0], *self._records_near(cuts[1:-1]), cuts[-1]})
        share = self.bytes_estimate / (len(cuts) - 1)
        spans = list(self.store.spans())
        partitions: list[Partition] = []
        for low, high in pairwise(cuts):
            ranges = [(max(low, a), min(high, b)) for a, b in spans if a < high and b > low]
            if ranges:
                partitions += self._partition(ranges, share, by_log=by_log)
        return partitions

    def _records_near(self, positions: list[int]) -> list[int]:
        """Where records begin, at each position or not far behind it."""
        firsts = np.sort(np.array([first for first, _, _ in self.segments], np.int64))
        found: list[int] = []
        for position in positions:
            near = firsts[np.searchsorted(firsts, position) :][:1].tolist()
            for _, one in self.largest:
                index = one.queue.at_position(position, one.low, one.high)
                if index < one.high:
                    near.append(one.queue.entry(index).position)
            if near:
                found.append(min(near))
        for _, one in self.largest:
            one.queue.close()
        return found

    def _cuts(self, pieces: int) -> list[int]:
        """Positions of the log between which lie equally many wanted bytes, by the segments."""
        first, after, size = (np.array(c, np.float64) for c in zip(*self.segments, strict=True))
        rates = size / np.maximum(1, after - first)
        at = np.concatenate([first, after])
        order = np.argsort(at, kind="stable")
        at = at[order]
        rate = np.cumsum(np.concatenate([rates, -rates])[order])
        so_far = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at))])
        inner = np.interp(np.arange(1, pieces) * so_far[-1] / pieces, so_far, at)
        return sorted({int(at[0]), *inner.astype(np.int64).tolist(), int(at[-1])})

    def _partition(
        self, ranges: list[tuple[int, int]], size: float, *, by_log: bool
    ) -> list[Partition]:
        """size: bytes of wanted records in the ranges."""
        low, high = ranges[0][0], ranges[-1][1]
        queues = tuple(q for q, first, end in self.queues if first < high and end > low)
        if not queues:
            return []
        density = size / (high - low)
        records = self.records * size / self.bytes_estimate
        few = records < _RECORDS_A_LOOK * len(queues)
        return [
            Partition(
                self.store.root, tuple(ranges), queues, dense=density > 1 / 16,
                identity=self.identity, by_log=by_log and few and density > 1 / 2,
            )
        ]  # fmt: skip
