"""Whole stores as Arrow batches, for pandas, DuckDB, Polars and Spark; needs numpy and pyarrow only.

    from pocketmq import bulk

    reader = bulk.scan("/data/broker-a/store", topics=["orders"], columns="topic,queueOffset,body")
    table = reader.read_all()                     # pyarrow.Table; .to_pandas(), duckdb.arrow(reader) ...

Stores of PocketMQ and Apache RocketMQ 4.9 / 5.x, also while a broker writes them. Reads files only: it knows
neither the broker's store nor a socket. See pocketmq.bulk.schema for the columns.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pocketmq.bulk.api import plan, scan
    from pocketmq.bulk.errors import BulkError, DataLoss, NotAStore, OtherStore
    from pocketmq.bulk.offsets import LossRule, Offsets, Positions
    from pocketmq.bulk.partition import Filters, Partition, QueueRange, Sizes, Topics
    from pocketmq.bulk.planner import Planner
    from pocketmq.bulk.rows import Read
    from pocketmq.bulk.scanner import read_partition
    from pocketmq.bulk.schema import ALL, COLUMNS, STANDARD, Column, resolve, schema_of
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

_HOMES = {
    "api": ("plan", "scan"),
    "errors": ("BulkError", "DataLoss", "NotAStore", "OtherStore"),
    "offsets": ("LossRule", "Offsets", "Positions"),
    "partition": ("Filters", "Partition", "QueueRange", "Sizes", "Topics"),
    "planner": ("Planner",),
    "rows": ("Read",),
    "scanner": ("read_partition",),
    "schema": ("ALL", "COLUMNS", "STANDARD", "Column", "resolve", "schema_of"),
    "store": ("Root", "find_roots"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Spark's Python processes plan or decode, seldom both: what one does not use is not imported.
    if name in _HOME:
        return getattr(import_module(f"pocketmq.bulk.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
