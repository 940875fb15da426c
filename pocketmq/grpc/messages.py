"""Message classes from the table of schema.py, created by the protobuf runtime on import.

No generated files: none to keep in step with the runtime's version, and the protocol stays readable.
"""

import re
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)

from pocketmq.grpc.schema import ROCKETMQ, Schema

_FIELD = re.compile(r"(\d+) (\w+) (\w+)([?*]?)(?:\|(\w+))?")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}
WELL_KNOWN = {
    "Timestamp": timestamp_pb2.DESCRIPTOR,
    "Duration": duration_pb2.DESCRIPTOR,
}


def file_descriptor(schema: Schema) -> descriptor_pb2.FileDescriptorProto:
    """Return a schema as protobuf's own description of a file."""
    file = descriptor_pb2.FileDescriptorProto(
        name=schema.file, package=schema.package, syntax="proto3"
    )
    if schema is ROCKETMQ:
        file.dependency.extend(each.name for each in WELL_KNOWN.values())
    for enum in schema.enums:
        made = file.enum_type.add(name=enum.__name__)
        for value in enum:
            made.value.add(name=value.name, number=value.value)
    text = re.sub(r"\n\s+", " ", schema.messages.strip())
    for line in text.splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add_field(schema, message, field.strip())
        for each in message.field:
            # Presence of one field is a oneof of its own, and those come last.
            if each.proto3_optional:
                each.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{each.name}")
    service = file.service.add(name=schema.service)
    for name, method in schema.methods.items():
        service.method.add(
            name=name,
            input_type=f".{schema.package}.{method.request or name + 'Request'}",
            output_type=f".{schema.package}.{method.answer or name + 'Response'}",
            client_streaming=method.asks_stream,
            server_streaming=method.answers_stream,
        )
    return file


def _add_field(schema: Schema, message: descriptor_pb2.DescriptorProto, text: str) -> None:
    match = _FIELD.fullmatch(text)
    assert match is not None, text
    number, name, kind, mark, group = match.groups()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if mark == "*" or kind == "map":
        field.label = _Field.LABEL_REPEATED
    if kind == "map":
        _add_map(schema, message, field)
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        is_enum = any(kind == enum.__name__ for enum in schema.enums)
        field.type = _Field.TYPE_ENUM if is_enum else _Field.TYPE_MESSAGE
        package = "google.protobuf" if kind in WELL_KNOWN else schema.package
        field.type_name = f".{package}.{kind}"
    field.proto3_optional = mark == "?"
    if group:
        names = [each.name for each in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)


def _add_map(
    schema: Schema,
    message: descriptor_pb2.DescriptorProto,
    field: descriptor_pb2.FieldDescriptorProto,
) -> None:
    """Add a map of texts by texts."""
    name = "".join(word[:1].upper() + word[1:] for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in ((1, "key"), (2, "value")):
        entry.field.add(
            name=part, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
        )
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{schema.package}.{message.name}.{name}"


def make(*schemas: Schema) -> dict[str, Any]:
    """Return the classes of these schemas by name."""
    pool = descriptor_pool.DescriptorPool()
    for known in WELL_KNOWN.values():
        pool.AddSerializedFile(known.serialized_pb)
    return {
        name: message_factory.GetMessageClass(described)
        for schema in schemas
        for name, described in pool.AddSerializedFile(
            file_descriptor(schema).SerializeToString()
        ).message_types_by_name.items()
    }


classes: dict[str, Any] = make(ROCKETMQ)
"""By name; the classes are the runtime's own, which no type checker knows."""

Status = classes["Status"]
Message = classes["Message"]
TelemetryCommand = classes["TelemetryCommand"]
ReceiveMessageResponse = classes["ReceiveMessageResponse"]
SendMessageResponse = classes["SendMessageResponse"]
