"""Message classes from the table of schema.py, made by the protobuf runtime when this is imported.

No generated files: none to keep in step with a version of the runtime, and the protocol stays readable.
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

from pocketmq.grpc.schema import ENUMS, MESSAGES, METHODS, PACKAGE

_FIELD = re.compile(r"(\d+) (\w+) (\w+)([?*]?)(?:\|(\w+))?")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}
_WELL_KNOWN = {
    "Timestamp": timestamp_pb2.DESCRIPTOR,
    "Duration": duration_pb2.DESCRIPTOR,
}
_ENUM_NAMES = {each.__name__ for each in ENUMS}


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """The schema as protobuf's own description of a file."""
    file = descriptor_pb2.FileDescriptorProto(
        name="apache/rocketmq/v2/service.proto", package=PACKAGE, syntax="proto3"
    )
    file.dependency.extend(each.name for each in _WELL_KNOWN.values())
    for enum in ENUMS:
        made = file.enum_type.add(name=enum.__name__)
        for value in enum:
            made.value.add(name=value.name, number=value.value)
    text = re.sub(r"\n\s+", " ", MESSAGES.strip())
    for line in text.splitlines():
        name, _, fields = line.partition(": ")
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add_field(message, field.strip())
        for each in message.field:
            # Presence of one field is a oneof of its own, and those come last.
            if each.proto3_optional:
                each.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{each.name}")
    service = file.service.add(name="MessagingService")
    for name, (asks_stream, answers_stream) in METHODS.items():
        both = name == "Telemetry"
        service.method.add(
            name=name,
            input_type=f".{PACKAGE}.{'TelemetryCommand' if both else name + 'Request'}",
            output_type=f".{PACKAGE}.{'TelemetryCommand' if both else name + 'Response'}",
            client_streaming=asks_stream,
            server_streaming=answers_stream,
        )
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, text: str) -> None:
    match = _FIELD.fullmatch(text)
    assert match is not None, text
    number, name, kind, mark, group = match.groups()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if mark == "*" or kind == "map":
        field.label = _Field.LABEL_REPEATED
    if kind == "map":
        _add_map(message, field)
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUM_NAMES else _Field.TYPE_MESSAGE
        package = "google.protobuf" if kind in _WELL_KNOWN else PACKAGE
        field.type_name = f".{package}.{kind}"
    field.proto3_optional = mark == "?"
    if group:
        names = [each.name for each in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)


def _add_map(
    message: descriptor_pb2.DescriptorProto, field: descriptor_pb2.FieldDescriptorProto
) -> None:
    """Texts by texts."""
    name = "".join(word.title() for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in ((1, "key"), (2, "value")):
        entry.field.add(
            name=part, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
        )
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{name}"


def _make() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in _WELL_KNOWN.values():
        pool.AddSerializedFile(known.serialized_pb)
    made = pool.AddSerializedFile(file_descriptor().SerializeToString())
    return {
        name: message_factory.GetMessageClass(described)
        for name, described in made.message_types_by_name.items()
    }


classes: dict[str, Any] = _make()
"""By name; the classes are the runtime's own, which no type checker knows."""

Status = classes["Status"]
Message = classes["Message"]
TelemetryCommand = classes["TelemetryCommand"]
ReceiveMessageResponse = classes["ReceiveMessageResponse"]
SendMessageResponse = classes["SendMessageResponse"]
