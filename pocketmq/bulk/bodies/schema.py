"""What the text of `bodySchema` means, and the decoder that comes of it.

    id BIGINT, lines ARRAY<STRUCT<sku: STRING>>      Spark's DDL, JSON bodies
    infer                                            from a sample of JSON bodies
    orders.schema.json, or {"type": "object", ...}   a JSON Schema, JSON bodies
    orders.avsc, or {"type": "record", ...}          an Avro schema, Avro bodies
    http://registry:8081/subjects/orders-value       a schema registry, Confluent's framing
    orders.desc#shop.Order                           a Protobuf descriptor set and a message

Files are read where the schema is parsed: decoders travel without them.
"""

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pocketmq.bulk.bodies.ddl import parse_ddl
from pocketmq.bulk.bodies.decoder import BodyDecoder
from pocketmq.remoting.errors import IllegalArgument

Sample = Callable[[], pa.BinaryArray]


def body_schema(text: str, sample: Sample | None = None) -> BodyDecoder:
    """Return the decoder that a text asks for, see the head of the file. sample: bodies for `infer`.

    Raises: IllegalArgument that says what is wrong with it.
    """
    text = text.strip()
    if not text:
        raise IllegalArgument("bodySchema is empty")
    if text == "infer":
        return _inferred(sample)
    if re.match(r"https?://", text):
        from pocketmq.bulk.bodies.registry import RegistryBodies

        return RegistryBodies(text)
    path, hash_, message = text.partition("#")
    if hash_ and path.endswith((".desc", ".pb", ".protoset")):
        from pocketmq.bulk.bodies.protobuf import ProtobufBodies

        return ProtobufBodies(_read(path), message)
    if text.startswith("{") or text.endswith((".json", ".avsc")):
        return _of_json(text)
    from pocketmq.bulk.bodies.json_bodies import JsonBodies

    return JsonBodies(parse_ddl(text))


def _of_json(text: str) -> BodyDecoder:
    given = text if text.startswith("{") else _read(text).decode("utf-8", "replace")
    try:
        parsed: dict[str, Any] = json.loads(given)
    except ValueError as error:
        raise IllegalArgument(f"bodySchema is not JSON: {error}") from error
    if parsed.get("type") == "record":
        from pocketmq.bulk.bodies.avro import AvroBodies

        return AvroBodies(parsed)
    from pocketmq.bulk.bodies.json_bodies import JsonBodies
    from pocketmq.bulk.bodies.json_schema import fields_of

    return JsonBodies(fields_of(parsed))


def _inferred(sample: Sample | None) -> BodyDecoder:
    from pocketmq.bulk.bodies.json_bodies import JsonBodies, infer

    if sample is None:
        raise IllegalArgument("bodySchema=infer is not possible here: give a schema")
    return JsonBodies(infer(sample()))


def _read(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise IllegalArgument(f"bodySchema: cannot read {path}: {error.strerror}") from error
