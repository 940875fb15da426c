"""JSON bodies by pyarrow's reader, many at once.

The reader takes values wherever one ends, not lines: a body that is no JSON, or more than one value, would
shift the rows behind it. So a mark stands behind each body, an object with a key that no body contains: only
if every second row is a mark, each row before one is exactly one body. Else halves are tried, until the
bodies that do not fit stand alone.
"""

import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pocketmq.bulk.bodies.decoder import DecodedBodies
from pocketmq.bulk.columns.arrays import Bools
from pocketmq.remoting.errors import IllegalArgument

_CHANGED = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_NO_OBJECT = "it is not an object of JSON"
# Not longer than a terminal's line.
_REASON_MAX = 160
_SAMPLED_MAX = 1000


class JsonBodies:
    """Decodes objects of JSON; keys that the schema does not name are passed over."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> DecodedBodies:
        # Without a field a body is judged all the same: as an object of whatever there is.
        schema = pa.schema([self.schema.field(name) for name in wanted] or list(self.schema))
        pieces: list[pa.RecordBatch] = []
        found: list[str | None] = []
        bodies = bodies.cast(pa.binary())
        safe = _safe(bodies)
        _parse(bodies.filter(pa.array(safe)), schema, pieces, found)
        rows = pa.Table.from_batches(pieces, schema).combine_chunks()
        errors = pa.array(found, pa.string())
        if not safe.all():
            places = pa.array(np.cumsum(safe) - 1, mask=~safe)
            rows = rows.take(places)
            errors = pc.if_else(pa.array(safe), errors.take(places), pa.scalar(_NO_OBJECT))
        columns = [rows.column(name).combine_chunks() for name in wanted]
        return DecodedBodies(columns, errors)


def _safe(bodies: pa.BinaryArray) -> Bools:
    """Return the bodies that the reader may see: a null that is no value of a key ends the process.

    One that begins with an object has such a null only behind a closed one; that may also be in a string.
    """
    filled = pc.fill_null(bodies, b"")
    safe: Bools = pc.match_substring_regex(filled, r"^\s*\{").to_numpy(zero_copy_only=False).copy()
    odd = pc.match_substring_regex(filled, r"\}\s*null").to_numpy(zero_copy_only=False)
    for number in np.flatnonzero(safe & odd).tolist():
        try:
            json.loads(filled[number].as_py())
        except ValueError:
            safe[number] = False
    return safe


def _parse(
    bodies: pa.BinaryArray,
    schema: pa.Schema,
    pieces: list[pa.RecordBatch],
    errors: list[str | None],
) -> None:
    """Append the rows of some bodies, and why each did not fit."""
    count = len(bodies)
    if not count:
        return
    try:
        pieces.append(_read(bodies, schema))
        errors += [None] * count
    except pa.ArrowInvalid as error:
        if count == 1:
            nulls = [pa.nulls(1, field.type) for field in schema]
            pieces.append(pa.RecordBatch.from_arrays(nulls, schema=schema))
            errors.append(_reason(error))
            return
        _parse(bodies.slice(0, count // 2), schema, pieces, errors)
        _parse(bodies.slice(count // 2), schema, pieces, errors)


def _read(bodies: pa.BinaryArray, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return a row for each body. schema: None: whatever columns there are. Raises: pa.ArrowInvalid."""
    whole = _together(bodies)
    key = "_"
    while f'"{key}"'.encode() in whole:
        key += "_"
    lines = pc.binary_join_element_wise(
        pc.fill_null(bodies, b""), f'\n{{"{key}":true}}\n'.encode(), b""
    )
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    text = data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    wanted = [] if schema is None else [pa.field(f.name, _read_as(f.type)) for f in schema]
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([*wanted, pa.field(key, pa.bool_())]),
            unexpected_field_behavior="infer" if schema is None else "ignore",
            newlines_in_values=b"\n" in whole,
        ),
    )
    marks = table.column(key).is_valid().to_numpy()
    if len(marks) != 2 * len(bodies) or marks[::2].any() or not marks[1::2].all():
        raise pa.ArrowInvalid("it is not one value")
    rows = table.drop_columns(key).take(pa.array(np.arange(0, len(marks), 2)))
    if schema is not None:
        rows = rows.cast(schema)
    (batch,) = rows.combine_chunks().to_batches()
    return batch


def _read_as(type_: pa.DataType) -> pa.DataType:
    """Return the type by which the reader finds a value: it knows no dates, but times."""
    if pa.types.is_date(type_):
        return pa.timestamp("s")
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _read_as(type_.value_type)))
    if pa.types.is_struct(type_):
        inner = (type_.field(n) for n in range(type_.num_fields))
        return pa.struct([pa.field(field.name, _read_as(field.type)) for field in inner])
    return type_


def _together(bodies: pa.BinaryArray) -> bytes:
    """Return all bodies without a gap: what none of these bytes contain, no body does."""
    _, offsets, data = bodies.buffers()
    bounds = np.frombuffer(offsets, np.int32)
    first, last = int(bounds[bodies.offset]), int(bounds[bodies.offset + len(bodies)])
    return b"" if data is None else data.slice(first, last - first).to_pybytes()


def _reason(error: pa.ArrowInvalid) -> str:
    text = str(error).removeprefix("JSON parse error: ").split(" in row ")[0]
    if changed := _CHANGED.fullmatch(text):
        place, expected, found = changed.groups()
        named = f"{place} is" if place else "it is"
        return f"{named} of type {found}, not {expected}"
    return text.strip()[:_REASON_MAX]


def infer(bodies: pa.BinaryArray) -> pa.Schema:
    """Return the columns of a sample of JSON bodies; those that are no object are passed over.

    Raises: IllegalArgument if no body is an object of JSON, or two disagree about the type of a column.
    """
    schemas: list[pa.Schema] = []
    for body in bodies.slice(0, _SAMPLED_MAX).to_pylist():
        alone = pa.array([body], pa.binary())
        if not _safe(alone).all():
            continue
        try:
            one = _read(alone, None)
        except pa.ArrowInvalid:
            continue
        schemas.append(pa.schema([_spark_field(field) for field in one.schema]))
    if not schemas:
        raise IllegalArgument("bodySchema=infer: none of the sampled bodies is an object of JSON")
    try:
        merged = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise IllegalArgument(
            f"bodySchema=infer: bodies disagree about a type: {error}. Give a schema"
        ) from error
    kept = [field for field in merged if not pa.types.is_null(field.type)]
    return pa.schema(kept)


def _spark_field(field: pa.Field) -> pa.Field:
    """Return a field with a type that Spark takes."""
    return pa.field(field.name, _spark_type(field.type))


def _spark_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _spark_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([_spark_field(type_.field(n)) for n in range(type_.num_fields)])
    return type_
