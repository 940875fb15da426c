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
    BooleanType,
    DataType,
    DoubleType,
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
    from pocketmq.bulk.bodies.columns import BodyColumns
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


def schema_of(columns: str, body: "BodyColumns | None" = None) -> StructType:
    """Return the schema for option `columns`. Raises: IllegalArgument."""
    if columns.strip().lower() == "kafka":
        return StructType([StructField(n, t) for n, t in _KAFKA_TYPES.items()])
    of_bodies = {} if body is None else _spark_fields(body)
    text = columns.strip()
    if body is not None and text not in ("", "all"):
        given = [name.strip() for name in text.split(",") if name.strip()]
        found = [name for name in given if name not in of_bodies]
        known = set(bulk_schema.resolve(found)) if found else set()
        names = [name for name in given if name in known or name in of_bodies]
    else:
        names = [*bulk_schema.resolve(columns or None), *of_bodies]
    return StructType([of_bodies.get(name) or _field(name) for name in names])


def _field(name: str) -> StructField:
    column = bulk_schema.COLUMNS[name]
    return StructField(name, _SPARK_TYPES[column.type], True, {"comment": column.help})


def _spark_fields(body: "BodyColumns") -> dict[str, StructField]:
    """Return the columns of bodies as Spark's."""
    from pyspark.sql.pandas.types import from_arrow_type

    return {f.name: StructField(f.name, from_arrow_type(f.type), True) for f in body.schema}


def _arrow_type(type_: DataType) -> pa.DataType:
    """Return the Arrow type of a column that `infer` has found."""
    if isinstance(type_, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(type_.elementType)))
    if isinstance(type_, StructType):
        return pa.struct([pa.field(f.name, _arrow_type(f.dataType)) for f in type_.fields])
    plain = {spark: arrow for arrow, spark in _SPARK_TYPES.items()}
    return (plain | {BooleanType(): pa.bool_(), DoubleType(): pa.float64()})[type_]


def body_of_schema(schema: StructType, on_error: str) -> "BodyColumns":
    """Return the columns of JSON bodies that a schema of Spark has beside those of messages: `infer` has
    found them when the schema was made.
    """
    from pocketmq.bulk.bodies.columns import BodyColumns
    from pocketmq.bulk.bodies.decoder import ERROR
    from pocketmq.bulk.bodies.json_bodies import JsonBodies

    found = [
        pa.field(field.name.removeprefix("body_"), _arrow_type(field.dataType))
        for field in schema.fields
        if field.name not in bulk_schema.COLUMNS and field.name != ERROR
    ]
    return BodyColumns(JsonBodies(pa.schema(found)), on_error)


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
    body: "BodyColumns | None" = None

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
        if self.body is not None:
            return self._with_bodies(batch, self.body)
        if not self.kafka:
            return batch
        arrays = [self._kafka(name, batch) for name in self.wanted]
        schema = pa.schema([pa.field(n, _ARROW_KAFKA[n]) for n in self.wanted])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _with_bodies(self, batch: pa.RecordBatch, body: "BodyColumns") -> pa.RecordBatch:
        wanted = [name for name in self.wanted if name in body.schema.names]
        arrays = body.decode(batch.column("body"), wanted)
        columns = dict(zip(wanted, arrays, strict=True))
        return pa.RecordBatch.from_arrays(
            [columns[n] if n in columns else batch.column(n) for n in self.wanted],
            list(self.wanted),
        )

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


def projection_of(
    schema: StructType, columns: str, body: "BodyColumns | None" = None
) -> Projection:
    """Return what to decode for `schema` (the source's own, or a user's subset in any order).

    Raises: IllegalArgument for a name or a type that does not exist.
    """
    kafka = columns.strip().lower() == "kafka"
    known: dict[str, DataType] = (
        _KAFKA_TYPES
        if kafka
        else {c.name: _SPARK_TYPES[c.type] for c in bulk_schema.COLUMNS.values()}
    )
    if body is not None:
        known |= {name: field.dataType for name, field in _spark_fields(body).items()}
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
    if body is not None and not bulk_schema.COLUMNS.keys() >= set(names):
        decoded = [n for n in names if n in bulk_schema.COLUMNS]
        return Projection(tuple(names), False, tuple(dict.fromkeys([*decoded, "body"])), body)
    if not kafka:
        return Projection(tuple(names), False, tuple(names))
    decoded = [_KAFKA_SOURCE[n] for n in names if n in _KAFKA_SOURCE] or ["queueOffset"]
    return Projection(tuple(names), True, tuple(dict.fromkeys(decoded)))
