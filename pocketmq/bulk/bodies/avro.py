"""Avro bodies by fastavro: bare, or in Confluent's framing (a zero byte, four bytes of schema id)."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pocketmq.bulk.bodies.decoder import DecodedBodies
from pocketmq.bulk.bodies.one_by_one import decoded
from pocketmq.bulk.columns.schema import STRING_MAP, TIMESTAMP
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.lazy_names import needs

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "uuid": pa.string(),
}
FRAME = 5
#: Returns the writer's schema by its id, parsed.
Writer = Callable[[int], Any]


class AvroBodies:
    """Decodes records of one schema, whatever newer or older one each was written with.

    writer: the registry that knows the schemas; without one, bodies are of the schema itself, framed or not.
    """

    def __init__(self, schema: dict[str, Any], writer: Writer | None = None) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise IllegalArgument(needs("a schema of Avro bodies", "fastavro", "avro")) from error
        try:
            self._parsed: Any = fastavro.parse_schema(schema)
        except Exception as error:
            raise IllegalArgument(f"bodySchema: the Avro schema is not valid: {error}") from error
        self._writer = writer
        self._read_one: Any = fastavro.schemaless_reader
        self.schema = pa.schema(
            [pa.field(field["name"], _type(field["type"])) for field in schema["fields"]]
        )

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> DecodedBodies:
        fields = [self.schema.field(name) for name in wanted]
        reader = self._pruned(wanted)
        return decoded(bodies, fields, lambda body: self._read(body, reader))

    def _pruned(self, wanted: Sequence[str]) -> Any:
        """Return the reader's schema with the wanted fields: the others are passed over."""
        kept = [field for field in self._parsed["fields"] if field["name"] in wanted]
        return {**self._parsed, "fields": kept} if kept else self._parsed

    def _read(self, body: bytes, reader: Any) -> dict[str, Any]:
        writer, at = self._parsed, 0
        if body[:1] == b"\0" and len(body) >= FRAME and self._writer is not None:
            writer, at = self._writer(int.from_bytes(body[1:FRAME], "big")), FRAME
        elif self._writer is not None:
            raise ValueError("it does not begin with a zero byte and the id of a schema")
        stream = io.BytesIO(body)
        stream.seek(at)
        found: dict[str, Any] = self._read_one(stream, writer, reader)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left behind the record")
        return found


def _type(one: Any) -> pa.DataType:
    """Return the Arrow type of an Avro one. Raises: IllegalArgument."""
    if isinstance(one, list):
        others = [each for each in one if each != "null"]
        if len(others) != 1:
            raise IllegalArgument(f"bodySchema: a union of several types has no column type: {one}")
        return _type(others[0])
    if isinstance(one, str):
        if one not in _PLAIN:
            raise IllegalArgument(f"bodySchema: type {one} of Avro has no column type")
        return _PLAIN[one]
    kind, logical = one["type"], one.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(one["precision"], one.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return pa.list_(pa.field("element", _type(one["items"])))
    if kind == "map":
        return (
            STRING_MAP if one["values"] == "string" else pa.map_(pa.string(), _type(one["values"]))
        )
    if kind == "record":
        return pa.struct([pa.field(f["name"], _type(f["type"])) for f in one["fields"]])
    if kind == "fixed":
        return pa.binary()
    return _type(kind if isinstance(kind, dict) or kind in _PLAIN else str(kind))
