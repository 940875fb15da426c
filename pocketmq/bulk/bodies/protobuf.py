"""Protobuf bodies by a descriptor set (`protoc --include_imports -o orders.desc`) and a message's name."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pocketmq.bulk.bodies.decoder import DecodedBodies
from pocketmq.bulk.bodies.one_by_one import decoded
from pocketmq.bulk.columns.schema import TIMESTAMP
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.lazy_names import needs

_DEPTH_MAX = 16
_TIME = "google.protobuf.Timestamp"


class ProtobufBodies:
    """Decodes messages of one type."""

    def __init__(self, descriptors: bytes, name: str) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError as error:
            raise IllegalArgument(
                needs("a schema of Protobuf bodies", "protobuf", "broker")
            ) from error
        self._source = (descriptors, name)
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
                pool.Add(file)
            self._descriptor: Any = pool.FindMessageTypeByName(name)
        except Exception as error:
            raise IllegalArgument(
                f"bodySchema: the descriptor set has no message {name!r}: {error}"
            ) from error
        self._class: Any = message_factory.GetMessageClass(self._descriptor)
        self._fields = _fields(self._descriptor, 0)
        self.schema = pa.schema([pa.field(name, type_) for name, type_, _ in self._fields])

    def __reduce__(self) -> Any:
        # Classes of a pool do not travel.
        return ProtobufBodies, self._source

    def decode(self, bodies: pa.BinaryArray, wanted: Sequence[str]) -> DecodedBodies:
        kept = [field for field in self._fields if field[0] in wanted]

        def read(body: bytes) -> dict[str, Any]:
            message = self._class.FromString(body)
            return {name: value(message) for name, _, value in kept}

        return decoded(bodies, [self.schema.field(name) for name in wanted], read)


Field = tuple[str, pa.DataType, Callable[[Any], Any]]


def _fields(descriptor: Any, depth: int) -> list[Field]:
    if depth > _DEPTH_MAX:
        return []
    found = ((f.name, _one(f, depth)) for f in descriptor.fields)
    return [(name, *each) for name, each in found if each is not None]


def _one(field: Any, depth: int) -> tuple[pa.DataType, Callable[[Any], Any]] | None:
    """Return a field's type, and what takes it from a message; None where messages nest too deeply."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _value(field.message_type.fields_by_name["value"], depth)
        if value is None:
            return None
        type_, convert = value
        key = pa.string()
        return pa.map_(key, type_), lambda m: [
            (str(k), convert(v)) for k, v in getattr(m, name).items()
        ]
    value = _value(field, depth)
    if value is None:
        return None
    type_, convert = value
    if _is_repeated(field):
        listed = pa.list_(pa.field("element", type_))
        return listed, lambda m: [convert(v) for v in getattr(m, name)]
    if field.has_presence:
        return type_, lambda m: convert(getattr(m, name)) if m.HasField(name) else None
    return type_, lambda m: convert(getattr(m, name))


def _is_repeated(field: Any) -> bool:
    # Protobuf 5 has a number, later versions have a property in its place.
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _value(field: Any, depth: int) -> tuple[pa.DataType, Callable[[Any], Any]] | None:
    """Return the type of one value of a field, and how to convert it."""
    if field.message_type is not None:
        if field.message_type.full_name == _TIME:
            return TIMESTAMP, lambda v: v.ToMicroseconds()
        inner = _fields(field.message_type, depth + 1)
        if not inner:
            return None
        type_ = pa.struct([pa.field(name, each) for name, each, _ in inner])
        return type_, lambda m: {name: value(m) for name, _, value in inner}
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.string(), lambda v: names.get(v, str(v))
    if field.type == field.TYPE_BYTES:
        return pa.binary(), _same
    return _PLAIN[field.cpp_type], _same


# By the numbers of FieldDescriptor.cpp_type; unsigned ones in the next larger type.
_PLAIN: dict[int, pa.DataType] = {
    1: pa.int32(), 2: pa.int64(), 3: pa.int64(), 4: pa.decimal128(20, 0), 5: pa.float64(),
    6: pa.float32(), 7: pa.bool_(), 9: pa.string(),
}  # fmt: skip


def _same(value: Any) -> Any:
    return value
