"""Columns as Spark sees them: the standard ones, and those of a Kafka source (`columns=kafka`)."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.bulk.columns import schema as bulk_schema
from pocketmq.bulk.partition import Filters
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pocketmq.bulk.rows import Read
    from pocketmq.spark.options import Options

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    bulk_schema.TIMESTAMP: TimestampType(),
    bulk_schema.STRING_MAP: MapType(StringType(), StringType(), True),
}

_log = logging.getLogger("pocketmq.spark")
_OPTIONS = "pocketmq.options"
# Kafka's column -> ours. timestampType 1 is "log append time", which storeTimestamp is.
_KAFKA_SOURCE = {
    "key": "keys",
    "value": "body",
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "headers": "properties",
}
_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_KAFKA_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}
_ARROW_HEADERS = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
_ARROW_KAFKA: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": bulk_schema.TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _ARROW_HEADERS,
}

# Decoding costs least in batches of some MiB, or many rows. What Spark makes of a batch costs a tenth less in
# pieces of these bytes and rows; below half of them, each piece costs more than it spares.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1 << 14


def schema_of(columns: str) -> StructType:
    """Return the schema for option `columns`. Raises: IllegalArgument."""
    if columns.strip().lower() == "kafka":
        return StructType([StructField(n, t) for n, t in _KAFKA_TYPES.items()])
    names = bulk_schema.resolve(columns or None)
    columns_ = (bulk_schema.COLUMNS[n] for n in names)
    return StructType(
        [StructField(c.name, _SPARK_TYPES[c.type], True, {"comment": c.help}) for c in columns_]
    )


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema of a catalog's table, with the options that it was created with."""
    first, *rest = schema.fields
    metadata = first.metadata | {_OPTIONS: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, True, metadata), *rest])


def options_in(schema: StructType) -> dict[str, str]:
    """Return what with_options() stored; nothing for any other schema."""
    for field in schema.fields:
        if _OPTIONS in field.metadata:
            found: dict[str, str] = json.loads(field.metadata[_OPTIONS])
            return found
    return {}


@dataclass(frozen=True)
class Projection:
    """Maps a schema that Spark requests to the columns to decode, and back.

    wanted: names in the schema's order; decoded: bulk columns, each once.
    """

    wanted: tuple[str, ...]
    kafka: bool
    decoded: tuple[str, ...]

    def read(self, options: "Options", filters: Filters | None, *, ordered: bool = True) -> "Read":
        """Return how a task reads. ordered: as in the log, also where only the index is read."""
        # Not imported where a query is planned, as in file_reader.
        from pocketmq.bulk.rows import Read

        return Read(
            self.decoded,
            filters if filters is not None else Filters(),
            options.decompress,
            options.verify_crc,
            options.read_batch_bytes(),
            ordered,
        )

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch of the decoded columns in the requested form, in pieces that a core's cache holds."""
        whole = self._arranged(batch)
        count = max(round(whole.nbytes / _PIECE_BYTES), -(-whole.num_rows // _PIECE_ROWS), 1)
        rows = max(1, -(-whole.num_rows // count))
        for first in range(0, whole.num_rows, rows):
            yield whole.slice(first, rows)

    def _arranged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.kafka:
            return batch
        arrays = [self._kafka(name, batch) for name in self.wanted]
        schema = pa.schema([pa.field(n, _ARROW_KAFKA[n]) for n in self.wanted])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @staticmethod
    def _kafka(name: str, batch: pa.RecordBatch) -> pa.Array:
        if name == "timestampType":
            return pa.repeat(pa.scalar(1, pa.int32()), batch.num_rows)
        array = batch.column(_KAFKA_SOURCE[name])
        if name == "key":
            return array.cast(pa.binary())
        if name == "headers":
            pairs = pa.StructArray.from_arrays(
                [array.keys, array.items.cast(pa.binary())], names=["key", "value"]
            )
            return pa.ListArray.from_arrays(array.offsets, pairs).cast(_ARROW_HEADERS)
        return array


def say_decoded(projection: Projection, columns: str) -> None:
    """Log what is decoded, and how to reduce it. columns: the option."""
    if not columns and projection.wanted == bulk_schema.STANDARD:
        _log.info(
            "decoded columns=%d, whatever the query uses: to decode fewer, name them with option "
            "columns, or read with pocketmq.spark.read",
            len(projection.decoded),
        )


def projection_of(schema: StructType, columns: str) -> Projection:
    """Return what to decode for `schema` (the source's own, or a user's subset in any order).

    Raises: IllegalArgument for a name or a type that does not exist.
    """
    kafka = columns.strip().lower() == "kafka"
    known: dict[str, DataType] = (
        _KAFKA_TYPES
        if kafka
        else {c.name: _SPARK_TYPES[c.type] for c in bulk_schema.COLUMNS.values()}
    )
    for field in schema.fields:
        if field.name not in known:
            raise IllegalArgument(
                f"there is no column {field.name!r}; the columns are {', '.join(known)}"
            )
        if field.dataType != known[field.name]:
            raise IllegalArgument(
                f"column {field.name!r} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it in the query"
            )
    names: Sequence[str] = schema.fieldNames()
    if not kafka:
        return Projection(tuple(names), False, tuple(names))
    decoded = [_KAFKA_SOURCE[n] for n in names if n in _KAFKA_SOURCE] or ["queueOffset"]
    return Projection(tuple(names), True, tuple(dict.fromkeys(decoded)))
