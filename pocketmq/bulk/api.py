"""The two calls of bulk reading: plan a read, and read batches. See pocketmq.bulk."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pocketmq.bulk.columns.schema import resolve, schema_of
from pocketmq.bulk.moments import checked_ms
from pocketmq.bulk.offsets import LossRule, Offsets, Positions
from pocketmq.bulk.partition import Filters, Partition, Sizes, Topics
from pocketmq.bulk.planning.planner import Planner
from pocketmq.bulk.rows import Read
from pocketmq.bulk.scanner import read_partition
from pocketmq.bulk.store import Root, find_roots


def plan(
    roots: Iterable[Root],
    topics: Topics,
    starting: Positions,
    ending: Positions,
    sizes: Sizes,
    loss: LossRule,
) -> list[Partition]:
    """Return the partitions of a batch read of the stores as they are now."""
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
    """Read messages of one or several stores, as a stream of Arrow batches in the order of the log.

    path: folders, comma lists, globs. columns: names, "all", or None for the standard set.
    starting_ms, ending_ms: store time, ms since 1970; the end is not included.
    Raises: NotAStore, IllegalArgument at once; DataLoss also while reading.
    """
    wanted = resolve(columns)
    for time in (starting_ms, ending_ms):
        if time is not None:
            checked_ms(time)
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
