"""From a selection to partitions: which ranges of which commit log files, and which queues in them.

A partition is a set of ranges of the log, each inside one file, plus the wanted queues: the log is read once,
in the order of the disk, whatever the number of queues (one queue at a time would read the whole log once per
queue). Partitions hold strings and numbers only and travel to executors as they are.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from pocketmq.bulk.offsets import (
    LossRule,
    Offsets,
    Positions,
    QueueKey,
    check_assigned,
    check_known,
    ending_offset,
    lookup,
    starting_offset,
    store_at,
)
from pocketmq.bulk.partition import BEFORE, BEHIND, Partition, QueueRange, Sizes, Topics
from pocketmq.bulk.planning.archived import Archive, ArchivedBounds, ArchivedWork, JoinedBounds
from pocketmq.bulk.planning.bounds import FileBounds
from pocketmq.bulk.planning.live_store import LiveStore
from pocketmq.bulk.planning.plan_cache import ArchivedStore, CachedPlan
from pocketmq.bulk.store import Root, StoreSnapshot
from pocketmq.model.names import is_system_topic
from pocketmq.remoting.errors import IllegalArgument, did_you_mean


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable garbage collection: a plan keeps its values, by the hundred thousand, and scanning them costs
    a third of the CPU.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Planner:
    """Plans reads of some stores as they are now."""

    @_without_collector()
    def __init__(
        self,
        roots: Sequence[Root],
        topics: Topics,
        loss: LossRule,
        *,
        must_exist: bool = True,
        kept: CachedPlan | None = None,
        say: Callable[[], None] = lambda: None,
    ) -> None:
        """must_exist: raises IllegalArgument for a named topic that does not exist. kept: from earlier
        plans. say: called for each inspected store, by several threads.
        """
        self.loss = loss
        self.topics = topics
        self._brokers = {root.broker_name for root in roots}
        kept = CachedPlan() if kept is None else kept
        looked = kept.look(roots, topics, loss, say)
        self.stores = [one if isinstance(one, StoreSnapshot) else one.store for one in looked]
        self.walked = [one for one in looked if isinstance(one, StoreSnapshot)]
        #: The queues that are wanted, as they are now.
        self.bounds: dict[QueueKey, FileBounds | ArchivedBounds | JoinedBounds] = {}
        for one in looked:
            if isinstance(one, LiveStore):
                self.bounds |= one.bounds
        for one in looked:
            if isinstance(one, ArchivedStore):
                self._join_archive(one, kept)
        if must_exist:
            self._check_names()

    def _join_archive(self, archive: ArchivedStore, kept: CachedPlan) -> None:
        for one in archive.queues:
            live = self.bounds.get(one.key)
            if isinstance(live, FileBounds):
                self.bounds[one.key] = kept.joined(one, live)
            elif self.topics.has_queue(one.key):
                self.bounds[one.key] = one

    def _check_names(self) -> None:
        present = {key.topic for key in self.bounds}
        missing = [t for t in self.topics.named() if t not in present]
        if missing and not self.walked:
            roots = ", ".join(s.root.path for s in self.stores)
            topics = _topics(self.stores)
            names = ", ".join(repr(t) + did_you_mean(t, topics) for t in missing)
            raise IllegalArgument(
                f"{self.topics.option}: there is no topic {names} in {roots}; {_some(topics)}"
            )
        if self.topics.assign is not None and not self.walked:
            check_assigned(self.topics.assign, self.bounds)

    def wants(self, key: QueueKey) -> bool:
        """Return True for a queue that is read, as far as a plan knows: files without queues may hold any."""
        return key in self.bounds or (bool(self.walked) and self.topics.has_queue(key))

    @_without_collector()
    def starts(self, wanted: Positions) -> Offsets:
        """Return where each queue begins."""
        wanted = wanted.of_brokers(self._brokers)
        if not self.walked:
            check_known(self.bounds, wanted, "starting", self.loss)
        result: Offsets = {}
        for key, bounds in self.bounds.items():
            store_at(result, key, starting_offset(bounds, wanted, self.loss))
        return result

    @_without_collector()
    def ends(self, wanted: Positions) -> Offsets:
        """Return where each queue ends, exclusive."""
        wanted = wanted.of_brokers(self._brokers)
        if not self.walked:
            check_known(self.bounds, wanted, "ending", self.loss)
        result: Offsets = {}
        for key, bounds in self.bounds.items():
            store_at(result, key, ending_offset(bounds, wanted, self.loss))
        return result

    @_without_collector()
    def partitions(self, starts: Offsets, ends: Offsets, sizes: Sizes) -> list[Partition]:
        """Return partitions that contain the offsets starts <= o < ends of all queues."""
        archived: dict[Archive, ArchivedWork] = {}
        wanted: dict[StoreSnapshot, list[tuple[FileBounds, int, int]]] = {}
        for key, one in self.bounds.items():
            start, end = lookup(starts, key), lookup(ends, key)
            for part, low, high in _parts(one, start, end, self.loss):
                if isinstance(part, ArchivedBounds):
                    archive = part.archive
                    archived.setdefault(archive, ArchivedWork(archive)).add(part, low, high)
                else:
                    wanted.setdefault(part.store, []).append((part, low, high))
        work: list[_StoreWork | ArchivedWork] = []
        for store, queues in wanted.items():
            one_work = _StoreWork(store, queues, sizes)
            if one_work.has_any:
                work.append(one_work)
        work += archived.values()
        total = sum(w.bytes_estimate for w in work)
        step = sizes.partition_bytes
        read = sizes.row_bytes * sum(w.records for w in work if isinstance(w, _StoreWork))
        if read:
            step = max(step, min(step * total // read, -(-total // sizes.tasks)))
        step = min(step, max(1, -(-total // max(1, sizes.partitions_min))))
        return [p for w in work for p in w.cut(step)]

    def walk_partitions(self, starting: Positions, ending: Positions) -> list[Partition]:
        """Return one partition per file for the stores without queues."""
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


def _topics(stores: Sequence[StoreSnapshot]) -> list[str]:
    return sorted({q.topic for s in stores for q in s.queues(lambda t: not is_system_topic(t))})


def _some(names: Sequence[str]) -> str:
    if not names:
        return "no topic has a queue there"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return "the topics are " + ", ".join(names[:10]) + more


def _parts(
    one: FileBounds | ArchivedBounds | JoinedBounds,
    start: int | None,
    end: int | None,
    loss: LossRule,
) -> Iterator[tuple[FileBounds | ArchivedBounds, int, int]]:
    """Yield where the offsets start <= o < end of a queue are read."""
    if start is None or end is None or start >= end:
        return
    if not isinstance(one, JoinedBounds):
        yield one, start, end
        return
    over = one.archived.max_offset
    if start < over:
        yield one.archived, start, min(end, over)
    begin = max(start, over)
    if begin < end and begin < one.live.min_offset:
        key = one.key
        loss.lost(
            f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}: the archive ends at offset "
            f"{over}, and the store begins at {one.live.min_offset}"
        )
        begin = one.live.min_offset
    if begin < end:
        yield one.live, begin, end


# Looks into the index files of a store, to see where in the log its wanted records are: at most, and for
# each task that may come of it.
_SAMPLES = 4096
_SAMPLES_A_TASK = 64
_SAMPLES_MIN = 2
_SAMPLES_MAX = 256
# Looking into a queue costs as much as walking over that many records; fewer queues are no burden.
_RECORDS_A_LOOK = 150
_MANY_QUEUES = 64
# Queues that are asked for a record near a cut.
_ASKED_FOR_CUTS = 4


class _StoreWork:
    """What to read from one store."""

    def __init__(
        self, store: StoreSnapshot, wanted: Sequence[tuple[FileBounds, int, int]], sizes: Sizes
    ) -> None:
        """wanted: offsets start <= o < end of each queue."""
        self.store = store
        self.identity = store.identity()
        # (queue, positions of its first and of its last record)
        self.queues: list[tuple[QueueRange, int, int]] = []
        self.largest: list[tuple[float, FileBounds]] = []
        self.records = 0
        # What only the log knows: (queue, first byte, end of its last record).
        self.behind: list[tuple[QueueRange, int, int]] = []
        # (first byte, end, bytes of wanted records), of all queues.
        self.segments: list[tuple[int, int, float]] = []
        log_size = store.log_end - store.log_start
        tasks = max(sizes.partitions_min, -(-log_size // sizes.partition_bytes))
        self._add(wanted, min(_SAMPLES, _SAMPLES_A_TASK * tasks))

    @property
    def bytes_estimate(self) -> int:
        return int(sum(size for _, _, size in self.segments))

    @property
    def has_any(self) -> bool:
        return bool(self.queues or self.behind)

    def _add(self, wanted: Sequence[tuple[FileBounds, int, int]], samples: int) -> None:
        samples = max(_SAMPLES_MIN, min(_SAMPLES_MAX, samples // max(1, len(wanted))))
        for one, start, end in wanted:
            topic, _, queue_id = one.key
            if end > one.indexed_end:
                queue = QueueRange(topic, queue_id, max(start, one.indexed_end), end)
                self.behind.append((queue, *one.span_behind))
                end = one.indexed_end
            low, high = one.indices(start, end)
            if low >= high:
                continue
            found = one.segments(low, high, samples)
            self.segments += found
            queue = QueueRange(topic, queue_id, start, end, one.queue.batch)
            last = one.last_position if high == one.high else one.position_of(high - 1)
            self.queues.append((queue, found[0][0], last))
            self.records += high - low
            self.remember(high - low, one)

    def remember(self, entries: int, bounds: FileBounds) -> None:
        """Keep the longest queues: they have a record near any place of the log."""
        self.largest.append((entries, bounds))
        if len(self.largest) > 2 * _ASKED_FOR_CUTS:
            self.largest.sort(key=lambda one: one[0], reverse=True)
            del self.largest[_ASKED_FOR_CUTS:]

    def cut(self, step: int) -> list[Partition]:
        """Return partitions of about `step` wanted bytes each; a range never crosses a file."""
        return self._cut_indexed(step) + self._cut_behind()

    def _cut_behind(self) -> list[Partition]:
        """Return one partition per file: a walk begins at a record."""
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
        """Return where records begin, at each position or shortly behind it."""
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
        """Return positions of the log that divide the wanted bytes evenly, by the segments."""
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
        """Return the partition of some ranges. size: bytes of wanted records in them."""
        low, high = ranges[0][0], ranges[-1][1]
        queues = tuple(
            _within(q, before=first < low, behind=last >= high)
            for q, first, last in self.queues
            if first < high and last >= low
        )
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


def _within(queue: QueueRange, *, before: bool, behind: bool) -> QueueRange:
    """The queue in a partition. before, behind: wanted entries of it are before and behind its ranges."""
    if queue.batch or not (before or behind):
        return queue
    start = BEFORE if before else queue.start
    return QueueRange(queue.topic, queue.queue_id, start, BEHIND if behind else queue.end)
