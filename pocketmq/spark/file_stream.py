"""readStream over store folders, even live ones: each batch ends where the index ended at planning time."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from pocketmq.bulk.offsets import Bounds, LossRule, Offsets, QueueKey
from pocketmq.bulk.planning.archived import ArchivedBounds, JoinedBounds
from pocketmq.bulk.planning.bounds import FileBounds, store_ms
from pocketmq.bulk.planning.plan_cache import CachedPlan
from pocketmq.bulk.planning.planner import Planner
from pocketmq.bulk.side_files import group_offsets
from pocketmq.bulk.store import StoreIdentity, find_roots
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.columns import Projection
from pocketmq.spark.file_reader import check_expression, read_files, warn
from pocketmq.spark.options import Options
from pocketmq.spark.positions import GROUP, filters_of, sizes_of, starting_of
from pocketmq.spark.settled import sentence_first
from pocketmq.spark.stream import Batches, OffsetStream, with_latest_offset
from pocketmq.spark.stream_offset import Stores

# Values that stores() gives of a store.
_KNOWN_SIZE = 2


@sentence_first
class FileStream(OffsetStream):
    """A stream over the queues of some stores. Globs are evaluated for each batch: new brokers join."""

    def __init__(self, options: Options, projection: Projection) -> None:
        super().__init__(options, starting_of(options, "latest"))
        self.projection = projection
        self.sizes = sizes_of(options)
        self.row_filters = filters_of(options)
        check_expression(options)
        if options.commit_offsets != "none" and not options.name_server:
            raise IllegalArgument(
                "commitOffsets needs option nameServer: reading files commits nothing. Use "
                "pocketmq.spark.commit_progress(spark, name_server, group) beside the query"
            )
        self._planner: Planner | None = None
        self._kept = CachedPlan()

    def __reduce__(self) -> Any:
        return (make_file_stream, (self.options, self.projection))

    def look(self, loss: LossRule, *, must_exist: bool) -> Mapping[QueueKey, Bounds]:
        roots = find_roots(self.options.store_paths, self.options.broker_names)
        self._planner = Planner(roots, self.topics, loss, must_exist=must_exist, kept=self._kept)
        if self._planner.walked:
            walked = ", ".join(s.root.path for s in self._planner.walked)
            raise IllegalArgument(
                f"cannot stream {walked}: it has no ConsumeQueue files (only the log was copied, "
                "or the queues are in RocksDB), so new messages cannot be recognized. Read it as "
                "a batch instead"
            )
        return self._planner.bounds

    def marks(self, places: Sequence[tuple[QueueKey, int]]) -> list[list[Any] | None]:
        assert self._planner is not None
        bounds = self._planner.bounds
        found: list[list[Any] | None] = []
        for key, offset in places:
            position = _position_of(bounds.get(key), offset)
            found.append(None if position is None else [key.queue_id, offset, position])
        return found

    def store_times(self, places: Sequence[tuple[QueueKey, int]]) -> list[int | None]:
        assert self._planner is not None
        return [_store_time(self._planner.bounds.get(key), offset) for key, offset in places]

    def stores(self) -> Stores:
        assert self._planner is not None
        # Of an archive and a live store the latter's log is ahead.
        known: dict[str, StoreIdentity] = {}
        for store in self._planner.stores:
            found = store.identity()
            name = store.root.broker_name
            if found is not None and (name not in known or known[name].first < found.first):
                known[name] = found
        return {name: [one.first, _digest(one.head)] for name, one in known.items()}

    def is_other(self, broker_name: str, known: list[Any]) -> bool:
        assert self._planner is not None
        if len(known) != _KNOWN_SIZE:
            return False
        first, digest = known
        mine = [s for s in self._planner.stores if s.root.broker_name == broker_name]
        for store in mine:
            file = store.log_file_of(first)
            head = None if file is None else store.head(file)
            if file is not None and head is not None:
                return (file.first, _digest(head)) != (first, digest)
        # Retention deletes from the front; a position behind the end of every log is of another store.
        return any(s.log_files for s in mine) and all(s.log_end <= first for s in mine)

    def initial(self, bounds: Mapping[QueueKey, Bounds], loss: LossRule) -> Offsets:
        starting = self.starting
        if starting.word == GROUP:
            assert self._planner is not None
            found = group_offsets(self._planner.stores, self.options.group, self._planner.wants)
            starting = replace(starting, word="earliest", offsets=found)
        return self.resolve_initial(bounds, starting, loss)

    def cut(
        self, starts: Offsets, ends: Offsets, bounds: Mapping[QueueKey, Bounds]
    ) -> Sequence[InputPartition]:
        assert self._planner is not None
        return [InputPartition(p) for p in self._planner.partitions(starts, ends, self.sizes)]

    def mean_size(self, bounds: Bounds) -> int:
        assert isinstance(bounds, FileBounds | ArchivedBounds | JoinedBounds)
        return bounds.mean_size()

    def warn(self, loss: LossRule) -> None:
        warn(loss)

    def read(self, partition: InputPartition | None) -> Batches:
        if partition is None or partition.value is None:
            return iter(())
        return read_files(partition.value, self.options, self.projection, self.row_filters)


def _position_of(bounds: Bounds | None, offset: int) -> int | None:
    """Return the position in the log of a message by the index; None without an index of it."""
    live = bounds.live if isinstance(bounds, JoinedBounds) else bounds
    if not isinstance(live, FileBounds) or not live.min_offset <= offset < live.indexed_end:
        return None
    return live.position_of(live.indices(offset, offset + 1)[0])


def _store_time(bounds: Bounds | None, offset: int) -> int | None:
    live = bounds.live if isinstance(bounds, JoinedBounds) else bounds
    position = _position_of(live, offset)
    if position is None:
        return None
    assert isinstance(live, FileBounds)
    return store_ms(live.store, position) or None


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]


_FileStream = with_latest_offset(FileStream)


def make_file_stream(options: Options, projection: Projection) -> OffsetStream:
    """Return the reader for the running PySpark."""
    return _FileStream(options, projection)  # type: ignore[arg-type]
