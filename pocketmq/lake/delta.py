"""DeltaTables: tables of Delta Lake, in folders or an object store; needs deltalake.

    WAREHOUSE/pocketmq/Orders/_delta_log

1. A commit's metadata (`commitInfo`) holds the position, under the same keys as a snapshot's summary in
   Iceberg. Other writers' commits have none: that of the newest commit before them holds. Where the log of
   ours has been cleaned up, the rows themselves say it.
2. A commit is written as the version behind the one that was read, and never retried by deltalake: another
   writer's commit of that version is a lost race.
3. A column of a partition is not in the files. That of time is a text, `storeDay` = 2026-11-29, which rows
   have beside storeTimestamp.
"""

import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from pocketmq.bulk.columns.schema import schema_of
from pocketmq.lake.catalog import NAMESPACE
from pocketmq.lake.columns import NAMES, table_name
from pocketmq.lake.parquet import ROW_GROUP_ROWS, parquet_writer, with_columns
from pocketmq.lake.partitions import DAY
from pocketmq.lake.position import MARKS_KEY, Position, position_of_rows
from pocketmq.lake.source import LogWindow
from pocketmq.lake.tables import LostRace
from pocketmq.remoting.errors import IllegalArgument

__all__ = ["DeltaError", "DeltaLakeTable", "DeltaTables", "in_a_line"]
_TIME = "storeTimestamp"
# The text of a partition of time.
_OF_TIME = {"hour": "%Y-%m-%d-%H", "day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
_COLUMNS = {f"store{word.capitalize()}": text for word, text in _OF_TIME.items()}
# Of a text that is a bound: what is longer is cut, and what is the greatest gets a greater character.
_TEXT_MAX = 32
_LAST_CHARACTER = "\U0010ffff"
# So many of the newest commits are looked at before all.
_NEWEST = 20


class DeltaTables:
    """The tables below a folder or URI."""

    def __init__(self, warehouse: str) -> None:
        self._base = f"{warehouse.rstrip('/')}/{NAMESPACE}"

    def known(self, topics: Iterable[str]) -> set[str]:
        return {topic for topic in topics if DeltaTable.is_deltatable(self._uri(topic))}

    def find(self, topic: str) -> "DeltaLakeTable | None":
        try:
            return DeltaLakeTable(DeltaTable(self._uri(topic)), _full_name(topic))
        except TableNotFoundError:
            return None

    def open(self, topic: str, partitions: tuple[str, ...] | None = None) -> "DeltaLakeTable":
        wanted = [
            f"store{word.capitalize()}" if word in _OF_TIME else word for word in partitions or DAY
        ]
        table = self.find(topic)
        if table is None:
            of_time = [pa.field(name, pa.string()) for name in wanted if name in _COLUMNS]
            DeltaTable.create(
                self._uri(topic),
                Schema.from_arrow(pa.schema([*schema_of(NAMES), *of_time])),
                # Another process may be quicker.
                mode="ignore",
                partition_by=wanted,
                name=table_name(topic),
            )
            table = DeltaLakeTable(DeltaTable(self._uri(topic)), _full_name(topic))
        found = table.partitions
        if partitions is not None and found != wanted:
            raise IllegalArgument(
                f"table {table.name} is partitioned by {', '.join(found) or 'nothing'} and stays so: leave "
                "--partition away, or write to another warehouse"
            )
        return table

    def _uri(self, topic: str) -> str:
        return f"{self._base}/{table_name(topic)}"


class DeltaLakeTable:
    """One table."""

    def __init__(self, table: DeltaTable, name: str) -> None:
        self.table = table
        self.name = name
        self._files = _files_of(table.table_uri)

    @property
    def partitions(self) -> list[str]:
        return list(self.table.metadata().partition_columns)

    def refresh(self) -> None:
        self.table.update_incremental()

    def position(self) -> Position:
        for limit in (_NEWEST, None):
            for commit in self.table.history(limit):
                if MARKS_KEY in commit:
                    found = Position.of_summary(commit)
                    assert found is not None
                    return found
        columns = ["topic", "brokerName", "queueId", "commitLogOffset", "queueOffset"]
        return position_of_rows(self.table.to_pyarrow_dataset().to_batches(columns=columns))

    def add_columns(self, columns: pa.Schema) -> None:
        there = self._schema()
        new: list[pa.Field] = []
        for field in columns:
            if field.name not in there.names:
                new.append(field)
            elif Schema.from_arrow(pa.schema([field])) != Schema.from_arrow(
                pa.schema([there.field(field.name)])
            ):
                raise IllegalArgument(
                    f"the columns of --body-schema do not fit those of table {self.name}: {field.name} is "
                    f"{there.field(field.name).type}, and a Delta table keeps its types"
                )
        if new:
            self.table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
            self.refresh()

    def write(self, rows: pa.Table) -> list[Any]:
        schema = self._schema()
        partitions = self.partitions
        in_files = pa.schema([field for field in schema if field.name not in partitions])
        return [
            self._write_file(with_columns(piece, in_files), values)
            for values, piece in _pieces(rows, partitions)
        ]

    def commit(self, files: list[Any], position: Position) -> None:
        try:
            self.table.create_write_transaction(
                files,
                "append",
                self.table.schema(),
                self.partitions,
                commit_properties=CommitProperties(
                    custom_metadata=position.summary(), max_commit_retries=0
                ),
            )
        except CommitFailedError as error:
            raise LostRace from error
        self.refresh()

    def count(self, topic: str, window: LogWindow) -> int:
        found: int = self._dataset().count_rows(filter=_condition(topic, window))
        return found

    def rows(self, topic: str, window: LogWindow) -> pa.Table:
        found = self._dataset().to_table(list(NAMES), filter=_condition(topic, window))
        return found.cast(schema_of(NAMES))

    def _dataset(self) -> ds.Dataset:
        return self.table.to_pyarrow_dataset()

    def _schema(self) -> pa.Schema:
        """Return the table's columns as Arrow has them in files."""
        return pa.schema(self.table.schema().to_arrow())

    def _write_file(self, rows: pa.Table, values: dict[str, str | None]) -> AddAction:
        path = f"{uuid.uuid4()}.parquet"
        metadata: list[Any] = []
        leaves = _leaves(rows.schema)
        with self._files.open_output_stream(path) as stream:
            with parquet_writer(stream, rows.schema, leaves, metadata) as writer:
                writer.write_table(rows, ROW_GROUP_ROWS)
            size = stream.tell()
        return AddAction(
            path, size, values, time.time_ns() // 1_000_000, True, _stats(metadata[0], leaves)
        )


def in_a_line(error: Exception) -> str:
    """Return what an error of deltalake says, without its colours and the stack of its threads."""
    text = re.split(r"\n\s*0: ", str(error))[0]
    return " ".join(re.sub(r"\x1b\[\d*m", "", text).split())


def _files_of(uri: str) -> pa_fs.FileSystem:
    """Return the files of a table; those of a folder without a detour by deltalake's handler."""
    if not uri.startswith("file://"):
        return pa_fs.PyFileSystem(DeltaStorageHandler(uri))
    local, path = pa_fs.FileSystem.from_uri(uri)
    return pa_fs.SubTreeFileSystem(path, local)


def _full_name(topic: str) -> str:
    return f"{NAMESPACE}.{table_name(topic)}"


def _pieces(
    rows: pa.Table, partitions: list[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition with its values as text, in their order."""
    keys: list[pa.Array] = []
    for name in partitions:
        if name in _COLUMNS:
            word = name.removeprefix("store").lower()
            # Without a zone it is the same, as all is UTC, and costs a tenth.
            column = pc.floor_temporal(rows.column(_TIME).cast(pa.timestamp("us")), unit=word)
        else:
            column = rows.column(name)
        keys.append(column.combine_chunks().dictionary_encode(null_encoding="encode"))
    texts = [_texts(name, key.dictionary) for name, key in zip(partitions, keys, strict=True)]
    if all(len(key.dictionary) == 1 for key in keys):
        yield {name: found[0] for name, found in zip(partitions, texts, strict=True)}, rows
        return
    codes = np.stack([key.indices.to_numpy() for key in keys], axis=1)
    for numbers in np.unique(codes, axis=0):
        values = {
            name: found[int(number)]
            for name, found, number in zip(partitions, texts, numbers, strict=True)
        }
        yield values, rows.filter(pa.array((codes == numbers).all(axis=1)))


def _texts(name: str, values: pa.Array) -> list[str | None]:
    """Return the values of a partition's column as the log has them."""
    if name in _COLUMNS:
        return list(pc.strftime(values, _COLUMNS[name]).to_pylist())
    return list(values.cast(pa.string()).to_pylist())


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the columns whose statistics a file has."""
    types = pa.types
    return [f.name for f in schema if not types.is_nested(f.type) and not types.is_binary(f.type)]


def _stats(footer: Any, leaves: list[str]) -> str:
    """Return what the log says of a file, so that readers pass over it: of all its columns, since deltalake's
    dataset takes a column without bounds for one without values.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls = dict.fromkeys(leaves, 0)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            name, found = column.path_in_schema, column.statistics
            if name not in nulls or found is None:
                continue
            nulls[name] += found.null_count
            if found.has_min_max:
                least[name] = min(least.get(name, found.min), found.min)
                most[name] = max(most.get(name, found.max), found.max)
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": {name: _plain(value, -math.inf) for name, value in least.items()},
            "maxValues": {name: _plain(value, math.inf) for name, value in most.items()},
            "nullCount": nulls,
        }
    )


def _plain(value: Any, towards: float) -> Any:
    """Return a bound as JSON has it, or a wider one; towards: an infinity, where wider is."""
    if isinstance(value, str):
        cut = value[:_TEXT_MAX]
        return cut + _LAST_CHARACTER if towards > 0 and cut != value else cut
    if isinstance(value, datetime):
        # Of whole milliseconds, as Spark has them too.
        wider = value + timedelta(microseconds=999 if towards > 0 else 0)
        return wider.strftime("%Y-%m-%dT%H:%M:%S.") + f"{wider.microsecond // 1000:03}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return math.nextafter(float(value), towards)
    return value


def _condition(topic: str, window: LogWindow) -> pc.Expression:
    column = ds.field(window.column)
    wanted = (ds.field("topic") == topic) & (ds.field("brokerName") == window.broker)
    wanted &= column >= window.low
    if window.high is not None:
        wanted &= column < window.high
    if window.queue is not None:
        wanted &= ds.field("queueId") == window.queue
    return wanted
