"""JSON bodies by pyarrow's reader, many at once.

The reader takes values wherever one ends, not lines: a body that is no JSON, or more than one value, would
shift the rows behind it. So it sees only bodies that begin with { and end with }, a line end between two. No
JSON has such a sequence but between two values: within an object or a list a comma follows }, and a string
holds no line end. So each body gives a row or more, and as many rows as bodies are one of each. Else halves
are tried, until the bodies that do not fit stand alone.
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
from pocketmq.bulk.columns.gather import offsets_and_data
from pocketmq.remoting.errors import IllegalArgument

_CHANGED = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_SPACED = r"^\s*\{(?s:.*)\}\s*$"
_NULL_BEHIND = re.compile(rb"\}\s*null")
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
    """Return the bodies that the reader may see: objects by their ends, without a zero, at which it stops.

    A null that is no value of a key ends the process. In a body that begins with { it is only behind a
    closed one; that may also be in a string.
    """
    filled = pc.fill_null(bodies, b"")
    safe = _has_ends(filled)
    offsets, data = offsets_and_data(filled)
    whole = memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    odd = np.zeros(len(safe), np.bool_)
    if _NULL_BEHIND.search(whole):
        odd |= pc.match_substring_regex(filled, _NULL_BEHIND.pattern).to_numpy(zero_copy_only=False)
    if len(whole) and not np.frombuffer(whole, np.uint8).min():
        odd |= pc.match_substring(filled, "\0").to_numpy(zero_copy_only=False)
    for number in np.flatnonzero(safe & odd).tolist():
        try:
            json.loads(filled[number].as_py())
        except ValueError:
            safe[number] = False
    return safe


def _has_ends(bodies: pa.BinaryArray) -> Bools:
    """Return which bodies begin with { and end with }, with or without space around them."""
    offsets, data = offsets_and_data(bodies)
    raw = np.frombuffer(data, np.uint8)
    found: Bools = np.diff(offsets) > 1
    rows = np.flatnonzero(found)
    found[rows] = (raw[offsets[rows]] == ord("{")) & (raw[offsets[rows + 1] - 1] == ord("}"))
    others = np.flatnonzero(~found)
    if len(others):
        spaced = pc.match_substring_regex(bodies.take(pa.array(others)), _SPACED)
        found[others] = spaced.to_numpy(zero_copy_only=False)
    return found


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
    lines = pc.binary_join_element_wise(bodies, b"\n", b"")
    offsets, data = offsets_and_data(lines)
    text = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    wanted = [] if schema is None else [pa.field(f.name, _read_as(f.type)) for f in schema]
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(wanted) if wanted else None,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )
    if table.num_rows != len(bodies):
        raise pa.ArrowInvalid("it is not one value")
    if schema is not None:
        table = table.cast(schema)
    (batch,) = table.combine_chunks().to_batches()
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
