"""Batch reads of store folders: planned once in the driver, read by tasks as Arrow batches.

Planning and reading both open the folders, so executors must see them under the same path (or as an
object store).
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.bulk.columns.schema import parts_of
from pocketmq.bulk.offsets import LossRule, Offsets, each, store_at
from pocketmq.bulk.partition import Filters, Partition, Sizes
from pocketmq.bulk.planning.planner import Planner
from pocketmq.bulk.side_files import group_offsets
from pocketmq.bulk.store import Root, StoreSnapshot, find_roots
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark.columns import Projection, say_decoded
from pocketmq.spark.options import Options
from pocketmq.spark.positions import (
    GROUP,
    check_batch,
    ending_of,
    filters_of,
    say_defaults,
    sizes_of,
    starting_of,
    topics_of,
)
from pocketmq.spark.pushdown import Pushable, Pushed, accept
from pocketmq.spark.settled import keep_freed, sentence_first, settle

_log = logging.getLogger("pocketmq.spark")
# Store times go back when a broker's clock is set back between two runs. A time filter of the query
# looks that much to either side before the rows themselves are compared.
CLOCK_SLACK_MS = 600_000
_SECONDS_A_LINE = 2.0
# What a row costs beside the body, in bytes of bodies that take as long: from its index entry, and from
# its properties.
_INDEX_BYTES = 32
_ROW_BYTES = 256


@sentence_first
class FileReader(DataSourceReader):
    """One batch read. Holds options only until partitions() is called; travels to tasks by pickle."""

    def __init__(
        self,
        options: Options,
        projection: Projection,
        cores: int = 1,
        *,
        pushes: bool = False,
        on_terminal: bool = False,
    ) -> None:
        """cores: tasks that can run at once. pushes: whether filters of the query are accepted; see
        environment.setup. on_terminal: whether to show the progress of a long plan on the driver's
        terminal.
        """
        self.options = options
        self.on_terminal = on_terminal
        self.projection = projection
        self.pushes = pushes
        self.pushed = Pushed.of_text(options.conditions)
        # Every mistake in the options shows before a folder is opened.
        self.topics = topics_of(options)
        self.starting = starting_of(options, "earliest")
        self.ending = ending_of(options)
        self.cores = cores
        self.sizes = sizes_of(options)
        check_expression(options)
        check_batch(self.starting, self.ending)
        self.roots: list[Root] = find_roots(options.store_paths, options.broker_names)

    @property
    def pushFilters(self) -> Any:
        """Spark's name; see pushdown.Pushable for why this is not a method."""
        return Pushable(self._accept)

    def _accept(self, filters: list[Any]) -> list[Any]:
        if not self.pushes:
            return filters
        stores = map(StoreSnapshot, self.roots)
        indexed = all(store.has_queues() or store.is_archive for store in stores)
        self.pushed, rest = accept(
            filters, self.pushed, kafka=self.projection.kafka, by_index=indexed
        )
        return rest

    def partitions(self) -> list[InputPartition]:
        filters = self.filters()
        if filters is None:
            return []
        loss = LossRule(self.options.fail_on_data_loss)
        say = told(len(self.roots), sys.stderr.write) if self.on_terminal else lambda: None
        planner = Planner(self.roots, self.topics, loss, say=say)
        starting = self.starting
        if starting.word == GROUP:
            found = group_offsets(planner.stores, self.options.group, planner.wants)
            starting = replace(starting, word="earliest", offsets=found)
        brokers = {root.broker_name for root in self.roots}
        say_defaults(self.topics, planner.bounds, starting.of_brokers(brokers))
        starts, ends = planner.starts(starting), planner.ends(self.ending)
        self._apply_pushed(planner, starts, ends)
        sizes = self._sizes(filters)
        found_partitions = planner.partitions(starts, ends, sizes)
        found_partitions += planner.walk_partitions(starting, self.ending)
        warn(loss)
        _log.info(
            "planned stores=%d queues=%d partitions=%d columns=%s pushed=%s",
            len(planner.stores),
            len(planner.bounds),
            len(found_partitions),
            ",".join(self.projection.decoded),
            self.pushed,
        )
        say_decoded(self.projection, self.options.columns)
        return [InputPartition(p) for p in found_partitions]

    def filters(self) -> Filters | None:
        """Return the row filters of options and query; None if nothing can pass."""
        return with_pushed(filters_of(self.options), self.pushed)

    def _sizes(self, filters: Filters) -> Sizes:
        """As the options say; what reads few bodies makes longer tasks, unless they say how long."""
        parts = parts_of(self.projection.decoded)
        # A key is searched in the properties, and few messages have it.
        bodies = "body" in parts and not filters.keys
        if self.options.max_partition_bytes or self.cores == 1 or bodies:
            return self.sizes
        row_bytes = _INDEX_BYTES if parts == {"queue"} and not filters.keys else _ROW_BYTES
        return replace(self.sizes, row_bytes=row_bytes, tasks=self.cores)

    def _apply_pushed(self, planner: Planner, starts: Offsets, ends: Offsets) -> None:
        """Narrow the planned offsets to what the query's filters leave."""
        pushed = self.pushed
        for key, start in list(each(starts)):
            bounds = planner.bounds[key]
            end = ends[key.topic][key.broker_name][key.queue_id]
            if not pushed.has(*key):
                end = start
            start, end = pushed.narrow(bounds, start, end, CLOCK_SLACK_MS)
            store_at(starts, key, start)
            store_at(ends, key, end)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # No partitions at all still make one task: read(None) in 4.0/4.1, a partition of None later.
        if partition is None or partition.value is None:
            return iter(())
        return read_files(partition.value, self.options, self.projection, self.filters())


def told(
    stores: int, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    """Return what to call per store: it prints a line every other second, so none for a short plan."""
    done = 0
    next_line = clock() + _SECONDS_A_LINE

    def say() -> None:
        nonlocal done, next_line
        done += 1
        if clock() >= next_line:
            next_line += _SECONDS_A_LINE
            write(f"planning: {done} of {stores} stores\n")

    return say


def read_files(
    partition: Partition, options: Options, projection: Projection, filters: Filters | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task."""
    # A process that plans reads nothing, and each query has one: what decodes costs it as much as all else.
    from pocketmq.bulk.scanner import read_partition

    settle()
    keep_freed()
    loss = LossRule(options.fail_on_data_loss)
    read = projection.read(options, filters, ordered=False)
    for batch in read_partition(partition, read, loss):
        yield from projection.pieces(batch)
    warn(loss)


def with_pushed(filters: Filters, pushed: Pushed) -> Filters | None:
    """Combine the filters of options and query; None if nothing can pass both."""
    if pushed.tags is not None:
        tags = pushed.tags & frozenset(filters.tags) if filters.tags else pushed.tags
        if not tags:
            return None
        filters = replace(filters, tags=tuple(sorted(tags)))
    if pushed.keys is not None and not filters.keys:
        filters = replace(filters, keys=tuple(sorted(pushed.keys)))
    return replace(filters, start_ms=pushed.start_ms, end_ms=pushed.end_ms)


def warn(loss: LossRule) -> None:
    """Log once what was missing."""
    if loss.losses:
        _log.warning(
            "data_loss count=%d first=%r; reading continues, since failOnDataLoss is false",
            len(loss.losses),
            loss.losses[0],
        )


def check_expression(options: Options) -> None:
    """Refuse SQL92, which only brokers evaluate. Raises: IllegalArgument."""
    if options.expression_type == "SQL92":
        raise IllegalArgument(
            "cannot filter files by expressionType=SQL92, which only brokers evaluate: give "
            "option nameServer, or use a where clause on column properties"
        )
