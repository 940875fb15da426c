"""FileSource: the rows of stores and archives behind a table's position, in the order of the log.

1. Within a queue, rows come in order, without a gap: so any prefix of them may be committed. An archive is
   read before the live store of its broker, and each partition before the next.
2. The log files that rows were read from are flushed before these rows are committed: a table never holds a
   record that a power cut takes from its broker.
3. What "new" means for a queue is said by its mark: the records behind its place in the log. Their first
   offset is the mark's, or a smaller one where the topic was deleted and created again.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from pocketmq.bulk.fetch import LocalFolders
from pocketmq.bulk.offsets import LossRule, Offsets, Positions, checked_start, store_at
from pocketmq.bulk.partition import MIB, Partition, Sizes, Topics
from pocketmq.bulk.planning.archived import ArchivedBounds, JoinedBounds
from pocketmq.bulk.planning.bounds import FileBounds
from pocketmq.bulk.planning.plan_cache import CachedPlan
from pocketmq.bulk.planning.planner import Planner
from pocketmq.bulk.rows import Read
from pocketmq.bulk.scanner import read_partition
from pocketmq.bulk.store import StoreSnapshot, find_roots
from pocketmq.lake.columns import NAMES
from pocketmq.lake.position import Head, Mark, Position
from pocketmq.lake.source import LogWindow, OtherLog, Rows, by_topic
from pocketmq.model.names import is_system_topic
from pocketmq.remoting.errors import IllegalArgument

_NAMED_MAX = 20
# What a partition reads of a mapped log counts as memory until it is done.
_PARTITION_BYTES = 64 * MIB
AnyBounds = FileBounds | ArchivedBounds | JoinedBounds


@dataclass
class FileSource:
    """Stores and archives: folders, a comma list, a glob or URIs.

    sealed: only log files behind which another one has begun. loss: whether damage and deleted files fail.
    """

    paths: Sequence[str]
    topics: Topics
    loss: LossRule
    sealed: bool = False
    broker_names: dict[str, str] | str | None = None
    _kept: CachedPlan = field(default_factory=CachedPlan)
    _read: set[str] = field(default_factory=set)
    _stores: list[StoreSnapshot] = field(default_factory=list)
    # How far stores without queues were walked, by path, and what this round adds.
    _walked: dict[str, int] = field(default_factory=dict)

    def plan(self) -> "FilePlan":
        """Look at the stores as they are now. Raises: NotAStore, IllegalArgument, DataLoss."""
        roots = find_roots(self.paths, self.broker_names)
        planner = Planner(roots, self.topics, self.loss, must_exist=False, kept=self._kept)
        if not self._stores and not planner.walked:
            self._check_topics(planner)
        self._stores = planner.stores
        return FilePlan(self, planner)

    def _check_topics(self, planner: Planner) -> None:
        """Raises: IllegalArgument for a topic that does not exist; later it may have been deleted."""
        there = {key.topic for key in planner.bounds}
        missing = [topic for topic in self.topics.named() if topic not in there]
        if missing:
            names = {queue.topic for store in planner.stores for queue in store.queues(_is_users)}
            raise IllegalArgument(
                f"there is no topic {', '.join(missing)} in {', '.join(self.paths)}; the topics are "
                + ", ".join(sorted(names)[:_NAMED_MAX])
            )

    def head(self, broker: str, place: int) -> Head | None:
        """Return the head of a broker's log at a record; None where looking costs a request."""
        for store in self._stores:
            if store.root.broker_name == broker and isinstance(store.folders, LocalFolders):
                found = store.head_at(place)
                if found is not None and any(found):
                    return Head(place, hashlib.sha256(found).hexdigest()[:16])
        return None

    def make_durable(self) -> None:
        """Flush the log files that were read since the last call (invariant 2)."""
        for path in sorted(self._read):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._read.clear()

    def close(self) -> None:
        for store in self._stores:
            store.close()


class FilePlan:
    """What stores hold at one time."""

    def __init__(self, source: FileSource, planner: Planner) -> None:
        self._source = source
        self._planner = planner
        self._cuts = {store: _sealed_end(store) for store in planner.stores if source.sealed}

    @property
    def topics(self) -> list[str]:
        """Return the topics with queues; those of stores without queues show in the rows only."""
        return sorted({key.topic for key in self._planner.bounds})

    def work(self, positions: Mapping[str, Position]) -> list[Partition]:
        """Return what is to be read behind the positions of the topics' tables."""
        self._check_heads(positions)
        starts: Offsets = {}
        ends: Offsets = {}
        for key, bounds in self._planner.bounds.items():
            position = positions.get(key.topic)
            mark = None if position is None else position.of(*key[:2]).get(key.queue_id)
            store_at(starts, key, _start(bounds, mark, self._source.loss))
            store_at(ends, key, self._end(bounds))
        found = self._planner.partitions(starts, ends, Sizes(partition_bytes=_PARTITION_BYTES))
        found.sort(key=lambda partition: not partition.files)
        walked = self._planner.walk_partitions(Positions(), Positions("latest"))
        return found + [one for one in walked if self._is_to_walk(one)]

    def rows(self, partition: Partition) -> Iterator[Rows]:
        """Yield the rows of a partition by topic, in order."""
        source = self._source
        low, high = partition.ranges[0][0], partition.ranges[-1][1]
        cut = self._cut_of(partition)
        for batch in read_partition(partition, Read(NAMES, by_queue=True), source.loss):
            if cut is not None and cut < high:
                batch = batch.filter(pc.less(batch.column("commitLogOffset"), cut))
            for topic, rows in by_topic(batch):
                yield Rows(topic, partition.root.broker_name, rows)
        for store in self._planner.stores:
            if store.root == partition.root and isinstance(store.folders, LocalFolders):
                spans = [f for f in store.log_files if f.end > low and f.first < high]
                source._read.update(file.path for file in spans)

    def windows(self, parts: list[Partition]) -> list[LogWindow]:
        """Return pieces of the logs; parts that overlap, as at the end of a crashed store, are one."""
        found: list[LogWindow] = []
        for part in sorted(parts, key=lambda p: (p.root.broker_name, p.ranges[0][0])):
            broker = part.root.broker_name
            low, high = part.ranges[0][0], part.ranges[-1][1]
            last = found[-1] if found else None
            if last is not None and last.broker == broker and low < (last.high or 0):
                low, high = last.low, max(high, last.high or 0)
                found[-1] = LogWindow(broker, (*last.parts, part), "commitLogOffset", low, high)
            else:
                found.append(LogWindow(broker, (part,), "commitLogOffset", low, high))
        return found

    @property
    def reaches_end(self) -> bool:
        return not self._cuts

    def _end(self, bounds: AnyBounds) -> int:
        """Return where a queue ends: of sealed files, at the first record behind them."""
        live = bounds.live if isinstance(bounds, JoinedBounds) else bounds
        if not isinstance(live, FileBounds) or live.store not in self._cuts:
            return bounds.max_offset
        cut = self._cuts[live.store]
        if live.span_behind[1] and live.span_behind[0] < cut:
            # Rows behind the index are cut by their places.
            return live.max_offset
        index = live.queue.at_position(cut, live.low, live.high)
        end = live.queue.offset_at(index, live.low, live.high)
        live.queue.close()
        return max(end, bounds.min_offset)

    def _cut_of(self, partition: Partition) -> int | None:
        cuts = [cut for store, cut in self._cuts.items() if store.root == partition.root]
        return cuts[0] if cuts and not partition.files else None

    def _is_to_walk(self, partition: Partition) -> bool:
        cut = self._cut_of(partition)
        return cut is None or partition.ranges[0][0] < cut

    def _check_heads(self, positions: Mapping[str, Position]) -> None:
        """Raises: OtherLog if a log no longer holds a table's last record (position.py, invariant 2)."""
        checked: set[tuple[str, Head]] = set()
        for topic, position in positions.items():
            for broker, head in position.heads.items():
                if (broker, head) in checked:
                    continue
                checked.add((broker, head))
                found = self._source.head(broker, head.place)
                if found is not None and found != head:
                    raise OtherLog(topic, broker, head.place)
                # Else retention has deleted it, or it was never there. An archive lags behind its store.
                live = [
                    store.log_end
                    for store in self._planner.stores
                    if store.root.broker_name == broker and not store.is_archive and store.log_files
                ]
                if found is None and live and max(live) <= head.place:
                    raise OtherLog(topic, broker, head.place)


def _is_users(topic: str) -> bool:
    return not is_system_topic(topic)


def _sealed_end(store: StoreSnapshot) -> int:
    """Return the end of the files behind which another one has a record."""
    if store.is_archive:
        return store.log_end
    used = [f for f in store.log_files if any(store.peek(f, 0, 4).to_pybytes())]
    return used[-1].first if used else 0


def _start(bounds: AnyBounds, mark: Mark | None, loss: LossRule) -> int:
    """Return the first offset behind a mark (invariant 3). Raises: DataLoss (see LossRule), OtherLog."""
    if mark is None:
        return bounds.min_offset
    offset = checked_start(bounds, mark.offset, LossRule(fail=False))
    first = _first_behind(bounds, mark.place)
    if first < mark.offset:
        return max(first, bounds.min_offset)
    if mark.offset < bounds.min_offset:
        return checked_start(bounds, mark.offset, loss)
    return offset


def _first_behind(bounds: AnyBounds, place: int) -> int:
    """Return the first offset of a queue whose record is behind a place in the log.

    Of an archive, whose index has no single records: its first offset if all are; else its last, which says
    nothing.
    """
    if isinstance(bounds, JoinedBounds):
        if place < bounds.archived.end_position:
            return _first_behind(bounds.archived, place)
        bounds = bounds.live
    if isinstance(bounds, ArchivedBounds):
        is_behind = bounds.first_position > place
        return bounds.min_offset if is_behind else bounds.max_offset
    if bounds.span_behind[1] and place >= bounds.span_behind[0]:
        return bounds.max_offset
    index = bounds.queue.at_position(place + 1, bounds.low, bounds.high)
    first = bounds.queue.offset_at(index, bounds.low, bounds.high)
    bounds.queue.close()
    return first
