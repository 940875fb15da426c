"""Whole stores as Arrow batches, for pandas, DuckDB, Polars and Spark; needs numpy and pyarrow only.

    from pocketmq.store import bulk

    reader = bulk.scan("/data/broker-a/store", topics=["orders"], columns="topic,queueOffset,body")
    table = reader.read_all()                     # pyarrow.Table; .to_pandas(), duckdb.arrow(reader) ...

Stores of PocketMQ and Apache RocketMQ 4.9 / 5.x, also while a broker writes them: bounds are taken once, and
only records that a ConsumeQueue entry points to are read. See bulk_schema for the columns.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pocketmq.store.bulk_errors import BulkError, DataLoss, NotAStore
from pocketmq.store.bulk_offsets import LossRule, Offsets, Positions
from pocketmq.store.bulk_plan import Filters, Partition, Planner, QueueRange, Sizes, Topics
from pocketmq.store.bulk_scan import Read, read_partition
from pocketmq.store.bulk_schema import ALL, COLUMNS, STANDARD, Column, resolve, schema_of
from pocketmq.store.bulk_store import Root, find_roots

__all__ = [
    "ALL",
    "COLUMNS",
    "STANDARD",
    "BulkError",
    "Column",
    "DataLoss",
    "Filters",
    "LossRule",
    "NotAStore",
    "Offsets",
    "Partition",
    "Planner",
    "Positions",
    "QueueRange",
    "Read",
    "Root",
    "Sizes",
    "Topics",
    "find_roots",
    "plan",
    "read_partition",
    "resolve",
    "scan",
    "schema_of",
]


def plan(
    roots: Iterable[Root],
    topics: Topics,
    starting: Positions,
    ending: Positions,
    sizes: Sizes,
    loss: LossRule,
) -> list[Partition]:
    """Partitions of a batch read of the stores as they are now."""
    planner = Planner(list(roots), topics, loss)
    starts, ends = planner.starts(starting), planner.ends(ending)
    return planner.partitions(starts, ends, sizes) + planner.walk_partitions(starting, ending)


def scan(
    path: str | Iterable[str],
    *,
    columns: str | Iterable[str] | None = None,
    topics: Iterable[str] = (),
    topic_pattern: str | None = None,
    tags: Iterable[str] = (),
    keys: Iterable[str] = (),
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_ms: int | None = None,
    ending_ms: int | None = None,
    broker_name: dict[str, str] | str | None = None,
    system_topics: bool = False,
    decompress: bool = True,
    verify_crc: bool = False,
    fail_on_data_loss: bool = True,
    batch_bytes: int = Sizes.batch_bytes,
) -> pa.RecordBatchReader:
    """Messages of one or several stores, as a stream of Arrow batches in the order of the log.

    path: folders, comma lists, globs. columns: names, "all", or None for the standard set.
    starting_ms, ending_ms: store time, ms since 1970; the end is not included.
    Raises: NotAStore, IllegalArgument at once; DataLoss also while reading.
    """
    wanted = resolve(columns)
    loss = LossRule(fail_on_data_loss)
    partitions = plan(
        find_roots(path, broker_name),
        Topics(tuple(topics), topic_pattern, system=system_topics),
        Positions(offsets=starting_offsets, ms=starting_ms, strategy="latest"),
        Positions("latest", offsets=ending_offsets, ms=ending_ms),
        Sizes(batch_bytes=batch_bytes),
        loss,
    )
    read = Read(wanted, Filters(tuple(tags), tuple(keys)), decompress, verify_crc, batch_bytes)

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            yield from read_partition(partition, read, loss)

    return pa.RecordBatchReader.from_batches(schema_of(wanted), batches())
