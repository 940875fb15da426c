"""How data files are written, the same for both formats."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 1 << 17
# Columns in which values repeat: others are written plain, since a dictionary of them would be given up.
_REPEATING = [
    "topic", "brokerName", "queueId", "tags", "properties.key_value.key", "flag", "sysFlag",
    "reconsumeTimes", "preparedTransactionOffset", "bornHost", "storeHost", "tagsCode",
]  # fmt: skip
# No reader passes over rows by the least and the greatest of all names, or of all values.
_WITHOUT_STATISTICS = "properties."


def parquet_writer(
    stream: Any, schema: pa.Schema, leaves: Iterable[str], metadata: list[Any]
) -> pq.ParquetWriter:
    """Open a file of a schema. leaves: paths of its leaf columns; metadata: gets the closed file's footer."""
    return pq.ParquetWriter(
        stream, schema, compression="zstd", compression_level=1, metadata_collector=metadata,
        use_dictionary=[c for c in _REPEATING if c.partition(".")[0] in schema.names],
        write_statistics=[leaf for leaf in leaves if not leaf.startswith(_WITHOUT_STATISTICS)],
        store_decimal_as_integer=True,
    )  # fmt: skip


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, null where they have none."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
