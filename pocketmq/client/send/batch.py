"""Batches: many small messages of one topic in one request (wire.md 5.6).

1. All messages of a batch have the same topic and the same WAIT property; none is delayed or goes to a retry
   topic.
2. A batch has an encoded size of at most `size_max`, and at most BATCH_COUNT_MAX messages; `split` cuts a
   longer list into as few batches as possible, in order.
Source: MessageBatch, MessageDecoder.encodeMessages, RocketMQ 4.9.7.
"""

from collections.abc import Iterator, Sequence

from pocketmq.client.errors import IllegalMessage, MessageTooLarge
from pocketmq.model.message import Message, Property
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import is_retry_topic
from pocketmq.model.record import BATCH_COUNT_MAX, encode_batch

_OVERHEAD = 22  # bytes of a batch member besides its body and properties
_DELAYING = (
    Property.DELAY.value,
    Property.TIMER_DELAY_MS.value,
    Property.TIMER_DELAY_SEC.value,
    Property.TIMER_DELIVER_MS.value,
)


def check_batch(messages: Sequence[Message]) -> None:
    """Check invariant 1. Raises: IllegalMessage."""
    if not messages:
        raise IllegalMessage("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise IllegalMessage(
                f"all messages of a batch go to one topic, not to {first.topic!r} and {message.topic!r}"
            )
        if _wait(message) != _wait(first):
            raise IllegalMessage("all messages of a batch must wait for the store, or none of them")
        if any(name in message.properties for name in _DELAYING):
            raise IllegalMessage(
                "a message of a batch cannot be delayed: send delayed messages one by one"
            )
    if is_retry_topic(first.topic):
        raise IllegalMessage("messages of a retry topic cannot be sent as a batch")


def _wait(message: Message) -> str:
    return message.properties.get(Property.WAIT.value, "true")


def member_size(message: Message) -> int:
    """Return the message's size inside a batch, bytes."""
    return (
        _OVERHEAD + len(message.body) + len(properties_to_text(message.properties).encode("utf-8"))
    )


def split(messages: Sequence[Message], size_max: int) -> Iterator[list[Message]]:
    """Split by invariant 2. Raises: MessageTooLarge if a single message does not fit."""
    chunk: list[Message] = []
    chunk_size = 0
    for message in messages:
        size = member_size(message)
        if size > size_max:
            raise MessageTooLarge(
                f"a message of topic {message.topic!r} takes {size} bytes in a batch, but the "
                f"limit is {size_max}: send it on its own,"
                " or raise max_message_size here and maxMessageSize at the broker"
            )
        if chunk and (chunk_size + size > size_max or len(chunk) == BATCH_COUNT_MAX):
            yield chunk
            chunk, chunk_size = [], 0
        chunk.append(message)
        chunk_size += size
    if chunk:
        yield chunk


def encode(messages: Sequence[Message]) -> bytes:
    """Encode the body of SEND_BATCH_MESSAGE."""
    return encode_batch(
        (message.flag, message.body, properties_to_text(message.properties).encode("utf-8"))
        for message in messages
    )
