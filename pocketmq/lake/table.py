"""LakeTable: one Iceberg table that is written: rows wait, become files, and are committed with a position.

1. Rows and position are one commit: a process that is killed before it has written nothing that a reader
   sees, one that is killed after it finds its position when it starts again. Files without a commit are
   removed some days later (expire.py).
2. A commit is made only onto the snapshot whose position the rows continue. If another writer was quicker
   (a compaction), it is repeated onto the new snapshot, as long as that has the same position.
3. Rows are appended to a queue in order: those of a commit continue what was committed before.
"""

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from pocketmq.lake.columns import file_schema
from pocketmq.lake.partitions import pieces
from pocketmq.lake.position import Position, position_of
from pocketmq.lake.waiting import WaitingRows
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_ROW_GROUP_ROWS = 1 << 17
_ATTEMPTS = 5
# Columns in which values repeat: others are written plain, since a dictionary of them would be given up.
_REPEATING = [
    "topic", "brokerName", "queueId", "tags", "properties.key_value.key", "flag", "sysFlag",
    "reconsumeTimes", "preparedTransactionOffset", "bornHost", "storeHost", "tagsCode",
]  # fmt: skip
# No reader passes over rows by the least and the greatest of all names, or of all values.
_WITHOUT_STATISTICS = "properties."


class TableInUse(PocketMQError):
    """Another process has written the same messages to a table."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"table {name} was written by another process at the same time: run one `pocketmq lake` at a time"
        )


class LakeTable:
    """See the head of the file. Owner of the table's position and of the rows that wait."""

    def __init__(self, table: "Table", clock: Callable[[], float] = time.monotonic) -> None:
        self.table = table
        self.name = ".".join(table.name())
        #: What the committed rows and those that wait are, together.
        self.position = position_of(table)
        self.committed = Position.of_summary(self.position.summary())
        #: Bytes of the rows that wait in memory.
        self.waiting_bytes = 0
        #: Bytes of the rows in files without a commit.
        self.written_bytes = 0
        self._clock = clock
        self._waiting = WaitingRows()
        self._files: list[DataFile] = []
        self._since: float | None = None
        self._schema = file_schema(table.schema())

    @property
    def age_s(self) -> float:
        """Return for how long the oldest row without a commit has waited, in seconds; 0 without one."""
        return 0.0 if self._since is None else self._clock() - self._since

    def add(self, rows: pa.RecordBatch, topic: str, broker: str) -> int:
        """Add rows of one topic and broker, in the order of its queues; return how many were new."""
        rows = self.position.add(rows, topic, broker)
        count: int = rows.num_rows
        if count:
            if self._since is None:
                self._since = self._clock()
            self._waiting.add(rows, broker)
            self.waiting_bytes += rows.nbytes
        return count

    def write(self) -> None:
        """Write the rows that wait to files, one for each partition."""
        if not self._waiting:
            return
        rows = self._waiting.taken()
        self.written_bytes += self.waiting_bytes
        self.waiting_bytes = 0
        for partition, piece in pieces(self.table, rows):
            self._files.append(write_file(self.table, self._schema, piece, partition))

    def commit(self) -> int:
        """Commit all rows that were added; return the number of files. Raises: TableInUse."""
        self.write()
        files = self._files
        if not files:
            return 0
        for attempt in range(_ATTEMPTS):
            try:
                with self.table.transaction() as change:
                    append = change.update_snapshot(snapshot_properties=self.position.summary())
                    with append.fast_append() as snapshot:
                        for file in files:
                            snapshot.append_data_file(file)
                break
            except CommitFailedException:
                self.table.refresh()
                if attempt + 1 == _ATTEMPTS or position_of(self.table) != self.committed:
                    raise TableInUse(self.name) from None
        self.committed = Position.of_summary(self.position.summary())
        self._files, self.written_bytes, self._since = [], 0, None
        return len(files)


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
        with pq.ParquetWriter(
            stream, schema, compression="zstd", compression_level=1, metadata_collector=metadata,
            use_dictionary=[c for c in _REPEATING if c.partition(".")[0] in schema.names],
            write_statistics=[leaf for leaf in leaves if not leaf.startswith(_WITHOUT_STATISTICS)],
            store_decimal_as_integer=True,
        ) as writer:  # fmt: skip
            columns = [
                rows.column(field.name).cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), _ROW_GROUP_ROWS)
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
