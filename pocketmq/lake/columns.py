"""The columns of a lake table, and the name of a topic's table.

The columns are those of pocketmq.bulk, without `propertiesRaw`, which repeats `properties`. The
files of a table are sorted by broker, queue and offset.
"""

import re
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from pocketmq.bulk.columns.schema import ALL, COLUMNS, STRING_MAP, TIMESTAMP

NAMES = tuple(name for name in ALL if name != "propertiesRaw")
#: Order within a data file.
SORTED_BY = ("brokerName", "queueId", "queueOffset")
_TYPES: dict[pa.DataType, IcebergType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    TIMESTAMP: TimestamptzType(),
}


def table_name(topic: str) -> str:
    """Return the name of a topic's table: other characters than letters, digits and `_` become `_`.

    Two topics may share a table; column `topic` tells their rows apart.

    >>> table_name("%RETRY%billing-1")
    '_RETRY_billing_1'
    """
    return re.sub(r"[^A-Za-z0-9_]", "_", topic)


def table_schema() -> Schema:
    """Return the schema of a new table, each column with its description."""
    fields: list[NestedField] = []
    next_id = len(NAMES) + 1
    for number, name in enumerate(NAMES, 1):
        column = COLUMNS[name]
        if column.type == STRING_MAP:
            type_: IcebergType = MapType(
                key_id=next_id, key_type=StringType(),
                value_id=next_id + 1, value_type=StringType(), value_required=False,
            )  # fmt: skip
            next_id += 2
        else:
            type_ = _TYPES[column.type]
        fields.append(NestedField(number, name, type_, required=False, doc=column.help))
    return Schema(*fields)


def sort_order(schema: Schema) -> SortOrder:
    found = [schema.find_field(name).field_id for name in SORTED_BY]
    return SortOrder(*(SortField(source_id=one, transform=IdentityTransform()) for one in found))


def file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's data files, with Iceberg's field ids and the types of bulk."""
    return pa.schema([_small(field) for field in schema_to_pyarrow(schema)])


def _small(field: pa.Field) -> pa.Field:
    """Return a field with 32-bit offsets in place of pyiceberg's 64-bit ones."""
    return pa.field(field.name, _small_type(field.type), field.nullable, field.metadata)


def _small_type(type_: Any) -> pa.DataType:
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_map(type_):
        return pa.map_(_small(type_.key_field), _small(type_.item_field))
    if pa.types.is_large_list(type_) or pa.types.is_list(type_):
        return pa.list_(_small(type_.value_field))
    if pa.types.is_struct(type_):
        return pa.struct([_small(type_.field(n)) for n in range(type_.num_fields)])
    return type_
