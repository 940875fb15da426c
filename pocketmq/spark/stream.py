"""Shared by both kinds of stream readers: limits per batch, triggers, data loss. Offsets: stream_offset.py.

1. The reader lives in one planner process for the whole query, but its copies in the tasks do not see its
   state: everything a task needs is in its partition.
2. PySpark 4.2 and newer: initialOffset (new query only), latestOffset(start, limit), partitions(start, end),
   commit. 4.0 and 4.1: latestOffset() without arguments, before initialOffset on a new query; on a restart
   first partitions(x, x) with the last offsets, or partitions(a, b) for a batch to be repeated. So with those
   versions the start is the last offset that was seen.
3. A queue that appears later is read from BEGINNING; messages that retention took there before the stream saw
   the queue are a loss (Kafka's rule). The offsets of a stream name no queue before it appears, so a planned
   batch that runs again begins such a queue at BEGINNING, too.
"""

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pocketmq.bulk.offsets import (
    Bounds,
    LossRule,
    Offsets,
    Positions,
    QueueKey,
    check_known,
    checked_start,
    each,
    lookup,
    starting_offset,
    store_at,
)
from pocketmq.remoting.errors import PocketMQError
from pocketmq.spark.options import Options
from pocketmq.spark.positions import say_defaults, topics_of
from pocketmq.spark.retry import RetryPause
from pocketmq.spark.settled import sentence_first
from pocketmq.spark.stream_offset import (
    BEHIND,
    OffsetScope,
    Stores,
    TopicKey,
    behind,
    from_offset,
    seen_of,
    to_offset,
)

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # PySpark 4.0 and 4.1
    HAS_LIMITS = False


# The first offset of every queue.
BEGINNING = 0


def share_out(backlog: Mapping[QueueKey, int], limit: int) -> dict[QueueKey, int]:
    """Divide `limit` messages among queues in proportion to their backlog, at least one each (Kafka's rule).

    With more queues than messages every queue with a backlog still gets one.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {
        key: min(waiting, max(1, limit * waiting // total)) if waiting else 0
        for key, waiting in backlog.items()
    }


@sentence_first
class OffsetStream(DataSourceStreamReader):
    """A stream over queues whose bounds can be looked up; subclasses define how."""

    def __init__(self, options: Options, starting: Positions) -> None:
        self.options = options
        self.topics = topics_of(options)
        self.starting = starting
        # A mistake in these shows when the query starts, not when the first limit is reached.
        self.trigger_delay_ms = options.trigger_delay_ms
        self.bytes_per_trigger = options.bytes_per_trigger
        self._initial: Offsets | None = None
        self._last: dict[str, Any] | None = None
        # Topics that the last look found to be others; marks that held, and for what.
        self._others: set[TopicKey] = set()
        self._held: dict[TopicKey, tuple[object, list[Any]]] = {}
        self._frozen: Offsets | None = None
        # Where the batch that was planned last ends.
        self._planned: Offsets = {}
        self._waiting_since_ms: int | None = None

    # ---- what a subclass knows

    @abstractmethod
    def look(self, loss: LossRule, *, must_exist: bool) -> Mapping[QueueKey, Bounds]:
        """Return the queues as they are now. must_exist: a named topic that does not exist is an error."""

    @abstractmethod
    def cut(
        self, starts: Offsets, ends: Offsets, bounds: Mapping[QueueKey, Bounds]
    ) -> Sequence[InputPartition]:
        """Return partitions for the offsets starts <= o < ends."""

    @abstractmethod
    def mean_size(self, bounds: Bounds) -> int:
        """Return the mean size of a message of this queue, bytes, approximate."""

    @abstractmethod
    def initial(self, bounds: Mapping[QueueKey, Bounds], loss: LossRule) -> Offsets:
        """Return where a new query begins."""

    @abstractmethod
    def warn(self, loss: LossRule) -> None:
        """Log once per batch what was missing."""

    def may_return(self, gone: Collection[QueueKey], patience: RetryPause) -> bool:
        """Return whether to look again for missing queues, after waiting."""
        return False

    @abstractmethod
    def marks(self, places: Sequence[tuple[QueueKey, int]]) -> list[list[Any] | None]:
        """Return marks that distinguish the messages at these offsets from any others there, queue and offset
        first, as of the last look; None if absent or unknown.
        """

    @abstractmethod
    def store_times(self, places: Sequence[tuple[QueueKey, int]]) -> list[int | None]:
        """Return when the messages at these offsets were stored, ms, as of the last look; None if unknown."""

    def stores(self) -> Stores:
        """Return what identifies the stores of the last look; nothing where that is unknown."""
        return {}

    def is_other(self, broker_name: str, known: list[Any]) -> bool:
        """Return True if the broker's store, as of the last look, is not the one that stores() told."""
        return False

    def held_for(self, broker_name: str) -> object:
        """Return that for which a mark holds once it was found to: then only a topic that grows is looked at
        again, and an idle micro-batch costs nothing.
        """
        return None

    def show_progress(self, offsets: Offsets) -> None:
        """Commit for commitOffsets=source; does nothing by default."""

    def resolve_initial(
        self, bounds: Mapping[QueueKey, Bounds], starting: Positions, loss: LossRule
    ) -> Offsets:
        """Return starting_offset() of every queue."""
        starting = starting.of_brokers({key.broker_name for key in bounds})
        say_defaults(self.topics, bounds, starting)
        check_known(bounds, starting, "starting", loss)
        offsets: Offsets = {}
        for key, one in bounds.items():
            store_at(offsets, key, starting_offset(one, starting, loss))
        return offsets

    # ---- Spark's calls

    def initialOffset(self) -> dict[str, Any]:
        first = self._first_offsets()
        return to_offset(first, self._seen_now(OffsetScope({}, {}), {}, first))

    def _first_offsets(self) -> Offsets:
        """Return where the query begins; looked up once, although 4.0 asks for it after the first end."""
        if self._initial is None:
            loss = self._loss()
            self._initial = self.initial(self.look(loss, must_exist=True), loss)
            self.warn(loss)
        return self._initial

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends = from_offset(start), from_offset(end)
        self._last = end
        if start == end:
            return []
        loss = self._loss()
        bounds = self._look_again(starts, loss)
        starts = self._of_these(starts, seen_of(start), (), loss)
        ends = self._of_these(ends, seen_of(end), (), loss)
        begins: Offsets = {}
        stops: Offsets = {}
        for key, stop in each(ends):
            begin = lookup(starts, key)
            known = bounds.get(key)
            if known is None:
                if begin is None:
                    _report_gone(key, f"its offsets up to {stop} were to be read", loss)
                continue
            begin = BEGINNING if begin is None else begin
            if begin < stop:
                begin = checked_start(known, begin, loss)
                stop = self._checked_end(known, stop, loss)
                if begin < stop:
                    store_at(begins, key, begin)
                    store_at(stops, key, stop)
        self.warn(loss)
        return self.cut(begins, stops, bounds)

    def commit(self, end: dict[str, Any]) -> None:
        self.show_progress(from_offset(end))

    def stop(self) -> None:
        """Do nothing: no state is held between calls."""

    # ---- what the two signatures of latestOffset share

    def after(self, start: dict[str, Any], rows: int, size: int) -> dict[str, Any]:
        """Return the offset to which the next batch reads: at most `rows` messages and about `size` bytes
        more; 0 is no limit.
        """
        starts, seen = from_offset(start), seen_of(start)
        ends = self._planned = self.latest_from(starts, rows, size, seen)
        if ends != starts or self._others:
            seen = self._seen_now(seen, starts, ends)
        return to_offset(ends, seen)

    def latest_from(
        self, start: Offsets, rows: int, size: int, seen: OffsetScope | None = None
    ) -> Offsets:
        """Return the end of the next batch, as after(). seen: of what `start` is."""
        loss = self._loss()
        bounds = self._look_again(start, loss)
        grown = {
            (key.topic, key.broker_name)
            for key, began in each(start)
            if key in bounds and bounds[key].max_offset > began
        }
        start = self._of_these(start, seen or OffsetScope({}, {}), grown, loss)
        ends: Offsets = {}
        begin: dict[QueueKey, int] = {}
        backlog: dict[QueueKey, int] = {}
        for key, one in bounds.items():
            stop = one.max_offset
            if self._frozen is not None:
                frozen = lookup(self._frozen, key)
                stop = min(stop, frozen) if frozen is not None else -1
            began = lookup(start, key)
            if stop < 0:
                if began is not None:
                    store_at(ends, key, began)
                continue
            if began is None:
                # No offset of the stream holds this queue's beginning: report now what is missing there, or
                # the batch would begin behind it.
                began = checked_start(one, BEGINNING, loss)
            elif began > one.max_offset:
                # Truncated or recreated: report it now; else nothing is read until it grows past the offset.
                began = checked_start(one, began, loss)
            if began < stop:
                # An idle queue is not asked where it begins.
                began = max(began, min(one.min_offset, stop))
            begin[key] = began
            backlog[key] = max(0, stop - began)
        self.warn(loss)
        if self._should_wait(sum(backlog.values())):
            return start
        if rows:
            backlog = share_out(backlog, rows)
        if size:
            backlog = self._within(backlog, bounds, size)
        for key, count in backlog.items():
            store_at(ends, key, begin[key] + count)
        return ends

    def latest_after_last(self) -> dict[str, Any]:
        """latestOffset() of 4.0 and 4.1: continue from the last offset that was seen (invariant 2)."""
        start = self.initialOffset() if self._last is None else self._last
        options = self.options
        self._last = self.after(start, options.max_offsets_per_trigger, options.bytes_per_trigger)
        return self._last

    def freeze(self) -> None:
        """Trigger.AvailableNow: fix the ends, so that this run reads nothing that comes later."""
        loss = self._loss()
        self._frozen = {}
        for key, one in self.look(loss, must_exist=False).items():
            store_at(self._frozen, key, one.max_offset)
        self.warn(loss)

    def newest(self) -> dict[str, Any]:
        """Return the ends of all queues, and how far the batch is behind them: for Spark's reports."""
        offsets: Offsets = {}
        for key, one in self.look(LossRule(fail=False), must_exist=False).items():
            store_at(offsets, key, one.max_offset)
        now_ms = time.time_ns() // 1_000_000
        return to_offset(offsets) | {
            BEHIND: behind(offsets, self._planned, self.store_times, now_ms)
        }

    def _look_again(self, start: Offsets, loss: LossRule) -> Mapping[QueueKey, Bounds]:
        """Return the queues as they are now; missing ones of `start` are a loss (Kafka's rule).

        With failOnDataLoss=false they leave the stream; a later one of the same name counts as new.
        """
        patience = RetryPause(self.options.retry_timeout_ms)
        while True:
            bounds = self.look(loss, must_exist=False)
            gone = {key: offset for key, offset in each(start) if key not in bounds}
            if not gone or not self.may_return(gone, patience):
                break
        for key, offset in gone.items():
            _report_gone(key, f"it was read up to offset {offset}", loss)
        return bounds

    def _of_these(
        self, offsets: Offsets, seen: OffsetScope, grown: Collection[TopicKey], loss: LossRule
    ) -> Offsets:
        """Return the offsets without those of other stores and topics than were seen: a loss.

        With failOnDataLoss=false they are new to the stream, and read from their beginning. grown: topics
        with messages behind the offsets.
        """
        others = {name for name, known in seen.stores.items() if self.is_other(name, known)}
        for name in sorted(others):
            loss.lost(
                f"the store of broker {name} is not the one that the checkpoint was made for, or it lost "
                "records that were read: its log holds others in their place. Start the query with a new "
                "checkpointLocation"
            )
        self._others = self._other_topics(seen, grown, others)
        for topic, name in sorted(self._others):
            loss.lost(
                f"topic {topic} of broker {name} is not the one that the checkpoint was made for: it was "
                "deleted and made again, or the broker has another store, or lost records that were read. "
                "Start the query with a new checkpointLocation"
            )
        self._others |= {
            (k.topic, k.broker_name) for k, _ in each(offsets) if k.broker_name in others
        }
        if not self._others:
            return offsets
        kept: Offsets = {}
        for key, offset in each(offsets):
            if (key.topic, key.broker_name) not in self._others:
                store_at(kept, key, offset)
        return kept

    def _other_topics(
        self, seen: OffsetScope, grown: Collection[TopicKey], brokers: Collection[str]
    ) -> set[TopicKey]:
        """Return the topics whose marks no longer hold. brokers: those that are known to be others."""
        asked: dict[TopicKey, tuple[QueueKey, int]] = {}
        for one, mark in seen.topics.items():
            topic, name = one
            held = self._held.get(one) == (self.held_for(name), mark)
            if name not in brokers and (one in grown or not held):
                asked[one] = QueueKey(topic, name, mark[0]), mark[1]
        found: set[TopicKey] = set()
        for one, now in zip(asked, self.marks(list(asked.values())), strict=True):
            mark = seen.topics[one]
            # A query may continue over brokers after it read files, whose marks have another length. Messages
            # that retention has deleted prove nothing; a queue that begins behind its offset is reported.
            if now is not None and len(now) == len(mark) and now != mark:
                found.add(one)
            else:
                self._held[one] = self.held_for(one[1]), mark
        return found

    def _seen_now(self, seen: OffsetScope, starts: Offsets, ends: Offsets) -> OffsetScope:
        """Return of what `ends` is, where `seen` is known of `starts`."""
        last: dict[TopicKey, tuple[QueueKey, int]] = {}
        left: set[TopicKey] = set()
        for key, end in each(ends):
            one = key.topic, key.broker_name
            left.add(one)
            if end and (lookup(starts, key) != end or one in self._others):
                last[one] = key, end - 1
        topics = {one: mark for one, mark in seen.topics.items() if one in left - self._others}
        for one, mark in zip(last, self.marks(list(last.values())), strict=True):
            if mark is not None:
                topics[one] = mark
                self._held[one] = self.held_for(one[1]), mark
        return OffsetScope(seen.stores | self.stores(), topics)

    def _within(
        self, backlog: dict[QueueKey, int], bounds: Mapping[QueueKey, Bounds], size: int
    ) -> dict[QueueKey, int]:
        means = {k: max(1, self.mean_size(bounds[k])) for k, n in backlog.items() if n}
        total = sum(n * means[k] for k, n in backlog.items() if n)
        if total <= size:
            return backlog
        return {
            key: max(1, int(count * size / total)) if count else 0 for key, count in backlog.items()
        }

    def _should_wait(self, available: int) -> bool:
        """Apply minOffsetsPerTrigger: wait for more, but not longer than maxTriggerDelay."""
        least = self.options.min_offsets_per_trigger
        if not least or self._frozen is not None or available >= least:
            self._waiting_since_ms = None
            return False
        now = time.monotonic_ns() // 1_000_000
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now
        if available and now - self._waiting_since_ms >= self.trigger_delay_ms:
            self._waiting_since_ms = None
            return False
        return True

    def _checked_end(self, bounds: Bounds, stop: int, loss: LossRule) -> int:
        if stop > bounds.max_offset:
            key = bounds.key
            loss.lost(
                f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id}: offsets up to {stop} "
                f"are planned, but the queue ends at {bounds.max_offset}: it was truncated or recreated"
            )
            return bounds.max_offset
        return stop

    def _loss(self) -> LossRule:
        return LossRule(self.options.fail_on_data_loss)


def _report_gone(key: QueueKey, what: str, loss: LossRule) -> None:
    loss.lost(
        f"topic {key.topic}, broker {key.broker_name}, queue {key.queue_id} is no longer there; {what}"
    )


def with_latest_offset(base: type[OffsetStream]) -> type[OffsetStream]:
    """Return the class with the latestOffset of the running PySpark (invariant 2)."""
    if not HAS_LIMITS:

        @sentence_first
        class _Plain(base):  # type: ignore[valid-type, misc]
            def latestOffset(self) -> dict[str, Any]:
                found: dict[str, Any] = self.latest_after_last()
                return found

        return _Plain

    @sentence_first
    class _Limited(base, SupportsTriggerAvailableNow):  # type: ignore[valid-type, misc]
        def getDefaultReadLimit(self) -> Any:
            if self.options.max_offsets_per_trigger:
                return ReadMaxRows(self.options.max_offsets_per_trigger)
            if self.bytes_per_trigger:
                return ReadMaxBytes(self.bytes_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
            if rows and self.bytes_per_trigger:
                size = self.bytes_per_trigger
            found: dict[str, Any] = self.after(start, rows, size)
            return found

        def prepareForTriggerAvailableNow(self) -> None:
            self.freeze()

        def reportLatestOffset(self) -> dict[str, Any]:
            found: dict[str, Any] = self.newest()
            return found

    return _Limited


Batches = Iterator[pa.RecordBatch]


@sentence_first
class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be made: its first call raises why.

    Spark 4 loses an error of `streamReader` itself: it says "cannot access local variable 'reader'" instead.
    """

    def __init__(self, error: PocketMQError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        raise self._error
