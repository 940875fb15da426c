"""IcebergTables: tables of a pyiceberg catalog, and how their data files are written."""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from pocketmq.bulk.columns.schema import schema_of
from pocketmq.lake.catalog import NAMESPACE, add_columns, existing_tables, table_of
from pocketmq.lake.columns import NAMES, file_schema, table_name
from pocketmq.lake.parquet import ROW_GROUP_ROWS, parquet_writer, with_columns
from pocketmq.lake.partitions import pieces
from pocketmq.lake.position import Position, position_of
from pocketmq.lake.source import LogWindow
from pocketmq.lake.tables import LostRace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import DataScan, Table

# Their constructors are made by pydantic, which no type checker sees through.
_ice: Any = expressions


class IcebergTables:
    """The tables of a catalog."""

    def __init__(self, catalog: "Catalog") -> None:
        self.catalog = catalog

    def known(self, topics: Iterable[str]) -> set[str]:
        there = set(existing_tables(self.catalog))
        return {topic for topic in topics if table_name(topic) in there}

    def find(self, topic: str) -> "IcebergTable | None":
        try:
            return IcebergTable(self.catalog.load_table((NAMESPACE, table_name(topic))))
        except NoSuchTableError:
            return None

    def open(self, topic: str, partitions: tuple[str, ...] | None = None) -> "IcebergTable":
        return IcebergTable(table_of(self.catalog, topic, partitions))


class IcebergTable:
    """One table."""

    def __init__(self, table: "Table") -> None:
        self.table = table
        self.name = ".".join(table.name())
        self._schema = file_schema(table.schema())

    def refresh(self) -> None:
        self.table.refresh()

    def position(self) -> Position:
        return position_of(self.table)

    def add_columns(self, columns: pa.Schema) -> None:
        add_columns(self.table, columns)
        self._schema = file_schema(self.table.schema())

    def write(self, rows: pa.Table) -> list[DataFile]:
        return [
            write_file(self.table, self._schema, piece, partition)
            for partition, piece in pieces(self.table, rows)
        ]

    def commit(self, files: list[DataFile], position: Position) -> None:
        try:
            with self.table.transaction() as change:
                append = change.update_snapshot(snapshot_properties=position.summary())
                with append.fast_append() as snapshot:
                    for file in files:
                        snapshot.append_data_file(file)
        except CommitFailedException as error:
            raise LostRace from error

    def count(self, topic: str, window: LogWindow) -> int:
        return _scan(self.table, topic, window).count()

    def rows(self, topic: str, window: LogWindow) -> pa.Table:
        found = _scan(self.table, topic, window).to_arrow()
        return found.select(list(NAMES)).cast(schema_of(NAMES))


def _scan(table: "Table", topic: str, window: LogWindow) -> "DataScan":
    """Return a scan of a table's rows in a window."""
    column, low, high = window.column, window.low, window.high
    wanted = [
        _ice.EqualTo("topic", topic),
        _ice.EqualTo("brokerName", window.broker),
        _ice.GreaterThanOrEqual(column, low),
    ]
    if high is not None:
        wanted.append(_ice.LessThan(column, high))
    if window.queue is not None:
        wanted.append(_ice.EqualTo("queueId", window.queue))
    return table.scan(row_filter=_ice.And(*wanted), selected_fields=NAMES)


def write_file(table: "Table", schema: pa.Schema, rows: pa.Table, partition: Record) -> DataFile:
    """Write rows of one partition to a new file of a table; return its entry, which a commit names."""
    folder = table.spec().partition_to_path(partition, table.schema())
    path = table.location_provider().new_data_location(
        "/".join((*([folder] if folder else []), f"{uuid.uuid4()}.parquet"))
    )
    output = table.io.new_output(path)
    leaves = parquet_path_to_id_mapping(table.schema())
    metadata: list[Any] = []
    with output.create() as stream:
        with parquet_writer(stream, schema, leaves, metadata) as writer:
            writer.write_table(with_columns(rows, schema), ROW_GROUP_ROWS)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata[0],
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=leaves,
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
