"""Whole stores as Arrow batches, for pandas, DuckDB, Polars and Spark; needs numpy and pyarrow only.

    from pocketmq import bulk

    reader = bulk.scan("/data/broker-a/store", topics=["orders"], columns="topic,queueOffset,body")
    table = reader.read_all()                     # pyarrow.Table; .to_pandas(), duckdb.arrow(reader) ...

Stores of PocketMQ and Apache RocketMQ 4.9 / 5.x, also while a broker writes them. Reads files only: it knows
neither the broker's store nor a socket. See pocketmq.bulk.columns.schema for the columns.
"""

from typing import TYPE_CHECKING

from pocketmq.remoting.lazy_names import lazy_names

if TYPE_CHECKING:
    from pocketmq.bulk.api import plan, scan
    from pocketmq.bulk.columns.schema import ALL, COLUMNS, STANDARD, Column, resolve, schema_of
    from pocketmq.bulk.errors import BulkError, DataLoss, NotAStore, OtherStore
    from pocketmq.bulk.offsets import LossRule, Offsets, Positions
    from pocketmq.bulk.partition import Filters, Partition, QueueRange, Sizes, Topics
    from pocketmq.bulk.planning.planner import Planner
    from pocketmq.bulk.rows import Read
    from pocketmq.bulk.scanner import read_partition
    from pocketmq.bulk.store import Root, find_roots

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
    "OtherStore",
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "pocketmq.bulk.api": (
            "plan",
            "scan",
        ),
        "pocketmq.bulk.errors": (
            "BulkError",
            "DataLoss",
            "NotAStore",
            "OtherStore",
        ),
        "pocketmq.bulk.offsets": (
            "LossRule",
            "Offsets",
            "Positions",
        ),
        "pocketmq.bulk.partition": (
            "Filters",
            "Partition",
            "QueueRange",
            "Sizes",
            "Topics",
        ),
        "pocketmq.bulk.planning.planner": ("Planner",),
        "pocketmq.bulk.rows": ("Read",),
        "pocketmq.bulk.scanner": ("read_partition",),
        "pocketmq.bulk.columns.schema": (
            "ALL",
            "COLUMNS",
            "STANDARD",
            "Column",
            "resolve",
            "schema_of",
        ),
        "pocketmq.bulk.store": (
            "Root",
            "find_roots",
        ),
    },
    extra="spark",
)
