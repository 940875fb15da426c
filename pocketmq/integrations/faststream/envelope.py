"""What a message of FastStream is on the wire, and back.

The body is the body. Headers are properties; so are `content-type`, `correlation_id` and `reply_to`, the
names of FastStream's other brokers. RocketMQ has no empty bodies: one travels as a zero byte and the property
`emptyBody`. A topic's name is escaped where RocketMQ allows less (queue_names.py).
"""

from collections.abc import Mapping
from typing import Any

from faststream.exceptions import SetupError
from faststream.message import decode_message

from pocketmq.client import Message, MessageExt, Property, SimpleConsumer
from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.response import PocketPublishCommand
from pocketmq.integrations.queue_names import topic_of
from pocketmq.model.names import REPLY_SUFFIX

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
REPLY_TO = "reply_to"
EMPTY = "emptyBody"

_SYSTEM = frozenset(each.value for each in Property)
_REQUEST = (Property.REPLY_TO_CLIENT.value, Property.CLUSTER.value)


def message_of(cmd: PocketPublishCommand, body: bytes, content_type: str | None) -> Message:
    """Return the message of a command. Raises: SetupError for a header that RocketMQ takes for its own."""
    properties = _properties(cmd.headers)
    for name, value in (
        (CONTENT_TYPE, content_type),
        (CORRELATION_ID, cmd.correlation_id),
        (REPLY_TO, cmd.reply_to),
        (EMPTY, "" if body else "true"),
    ):
        if value:
            properties[name] = value
    return Message(
        topic_of(cmd.destination),
        body or b"\0",
        tags=cmd.tags,
        keys=cmd.keys,
        properties=properties,
    )


def _properties(headers: Mapping[str, Any]) -> dict[str, str]:
    taken = sorted(headers.keys() & _SYSTEM)
    if taken:
        raise SetupError(
            f"header {taken[0]!r} is a property with a meaning to RocketMQ: use another name, or the "
            "options tags, keys and delay_s"
        )
    return {name: str(value) for name, value in headers.items()}


def is_request(message: MessageExt) -> bool:
    """Return whether a client waits for the answer (Producer.request, in Java and here)."""
    return all(name in message.properties for name in _REQUEST)


class Parser:
    """Messages as functions see them. Owner: a subscriber, which sets `consumer` when it starts."""

    def __init__(self) -> None:
        self.consumer: SimpleConsumer | None = None

    async def parse_message(self, message: MessageExt) -> PocketMessage:
        """Return the message for a function."""
        properties = message.properties
        reply_to = properties.get(REPLY_TO, "")
        if not reply_to and is_request(message):
            reply_to = properties[Property.CLUSTER.value] + REPLY_SUFFIX
        parsed = PocketMessage(
            raw_message=message,
            body=_body(message),
            headers=_headers(message),
            reply_to=reply_to,
            content_type=properties.get(CONTENT_TYPE),
            correlation_id=properties.get(CORRELATION_ID)
            or properties.get(Property.CORRELATION_ID.value),
            message_id=message.msg_id,
        )
        parsed.consumer = self.consumer
        return parsed

    async def parse_batch(self, messages: list[MessageExt]) -> PocketMessage:
        """Return the messages for a function; headers and ids are those of the first one."""
        first = await self.parse_message(messages[0])
        parsed = PocketMessage(
            raw_message=messages,
            body=[_body(message) for message in messages],
            headers=first.headers,
            batch_headers=[_headers(message) for message in messages],
            reply_to=first.reply_to,
            correlation_id=first.correlation_id,
            message_id=first.message_id,
        )
        parsed.consumer = self.consumer
        return parsed

    async def decode_message(self, message: PocketMessage) -> Any:
        """Return the body by its content type."""
        return decode_message(message)

    # FastStream knows a batch by this name.
    async def decode_batch(self, message: PocketMessage) -> list[Any]:
        """Return the bodies, each by its content type."""
        return [decode_message(await self.parse_message(each)) for each in message.raw_message]


def _body(message: MessageExt) -> bytes:
    return b"" if EMPTY in message.properties else message.body


def _headers(message: MessageExt) -> dict[str, str]:
    return {
        name: value
        for name, value in message.properties.items()
        if name not in _SYSTEM and name != EMPTY
    }
