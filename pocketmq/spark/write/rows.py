"""Converts rows of a DataFrame to messages. Columns: body, and those of the table below.

column            type                    becomes
body              STRING or BINARY        the body; the only column that must be there
topic             STRING                  the topic, else option topic
tags              STRING                  property TAGS
keys              STRING or ARRAY<STRING> property KEYS, separated by spaces
properties        MAP<STRING,STRING>      properties
queueId           INT                     the queue, with queueSelector=column
delayLevel        INT                     property DELAY: RocketMQ's level 1 to 18
deliverTimestamp  BIGINT or TIMESTAMP     property TIMER_DELIVER_MS (brokers 5.x)
shardingKey       STRING                  property __SHARDINGKEY; the same key goes to the same queue
flag              INT                     the message's flag
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pocketmq.bulk.moments import checked_ms
from pocketmq.model.message import Property
from pocketmq.model.message_codec import properties_to_text
from pocketmq.remoting.errors import IllegalArgument

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "body": (StringType, BinaryType),
    "topic": (StringType,),
    "tags": (StringType,),
    "keys": (StringType, ArrayType),
    "properties": (MapType,),
    "queueId": _INTEGERS,
    "delayLevel": _INTEGERS,
    "deliverTimestamp": (LongType, TimestampType),
    "shardingKey": (StringType,),
    "flag": _INTEGERS,
}
_RESERVED = ("\x01", "\x02")


# A job for Kafka's sink names these.
_KAFKAS = {
    "key": "keys",
    "value": "body",
    "headers": "properties",
    "partition": "queueId",
}


@dataclass(slots=True)
class RowMessage:
    """One message to send; `properties` is the text as it travels, without ids."""

    topic: str
    body: bytes
    properties: str
    flag: int
    queue_id: int | None
    sharding_key: str | None
    single: bool


def check_schema(schema: StructType, topic: str, selector: str) -> None:
    """Check columns and types before a task starts. Raises: IllegalArgument."""
    names = schema.fieldNames()
    for field in schema.fields:
        allowed = _TYPES.get(field.name)
        if allowed is None:
            hint = "Put other values into properties (a map) or into the body"
            if field.name in _KAFKAS:
                hint = f"What Kafka's sink calls {field.name} is {_KAFKAS[field.name]}"
            raise IllegalArgument(
                f"column {field.name!r} cannot be written; columns are {', '.join(_TYPES)}. {hint}"
            )
        if not isinstance(field.dataType, allowed):
            wanted = " or ".join(t.typeName() for t in allowed)
            raise IllegalArgument(
                f"column {field.name!r} must be {wanted}, not {field.dataType.simpleString()}"
            )
    if "body" not in names:
        raise IllegalArgument("column 'body' is missing: it holds the messages' bodies")
    if "topic" not in names and not topic:
        raise IllegalArgument("give option topic, or a column 'topic'")
    if selector == "column" and "queueId" not in names:
        raise IllegalArgument("queueSelector=column needs a column 'queueId'")


def outgoing(row: Mapping[str, Any], topic: str) -> RowMessage:
    """Return the message of one row. Raises: IllegalArgument for values that no message can have."""
    body = row["body"]
    if body is None:
        raise IllegalArgument("a row has no body; filter such rows or give them an empty body")
    target = row.get("topic") or topic
    if not target:
        raise IllegalArgument(
            "a row has no topic: fill in its column 'topic', or give option topic"
        )
    properties: dict[str, str] = {}
    for name, value in dict(row.get("properties") or {}).items():
        if value is not None:
            properties[str(name)] = str(value)
    keys = row.get("keys")
    if keys is not None and not isinstance(keys, str):
        keys = " ".join(k for k in keys if k)
    sharding_key = row.get("shardingKey")
    single = False
    for name, value in (
        (Property.TAGS, row.get("tags")),
        (Property.KEYS, keys),
        (Property.SHARDING_KEY, sharding_key),
    ):
        if value:
            properties[name.value] = value
    level = row.get("delayLevel")
    if level:
        properties[Property.DELAY.value] = str(level)
        single = True
    deliver = row.get("deliverTimestamp")
    if deliver is not None:
        is_time = isinstance(deliver, datetime)
        ms = int(deliver.timestamp() * 1000) if is_time else _delivery_ms(int(deliver))
        properties[Property.TIMER_DELIVER_MS.value] = str(ms)
        single = True
    for name, value in properties.items():
        if not name or not value or any(r in name or r in value for r in _RESERVED):
            raise IllegalArgument(
                f"property {name!r} is empty or contains character 1 or 2, which separate "
                "properties"
            )
    queue_id = row.get("queueId")
    return RowMessage(
        target,
        body.encode() if isinstance(body, str) else bytes(body),
        properties_to_text(properties),
        int(row.get("flag") or 0),
        None if queue_id is None else int(queue_id),
        sharding_key or (keys or None),
        single,
    )


def _delivery_ms(value: int) -> int:
    try:
        return checked_ms(value)
    except IllegalArgument as error:
        raise IllegalArgument(f"column deliverTimestamp: {error}") from None
