"""Which message a copy in a retry topic, or among the dead letters, is of: by its properties. No I/O."""

from collections.abc import Callable
from typing import NamedTuple

from pocketmq.model.message_codec import get_property, parse_offset_msg_id
from pocketmq.model.record import Record
from pocketmq.remoting.errors import IllegalArgument

REDELIVERED = b"REDELIVERED"
"""Property of a message that was lost and is given to its group again. PocketMQ only."""


class Place(NamedTuple):
    """Where a message is."""

    topic: str
    queue_id: int
    offset: int


def original(
    properties: bytes,
    at_position: Callable[[int], Record | None],
    by_key: Callable[[str, bytes], Record | None],
) -> Place | None:
    """Return the place of the message that a copy with these properties is of; None if it is not stored.

    by_key: return a record of a topic by its UNIQ_KEY.
    """
    msg_id = get_property(properties, b"ORIGIN_MESSAGE_ID")
    key = get_property(properties, b"UNIQ_KEY")
    record = None if msg_id is None else _at(msg_id, at_position)
    if msg_id is not None and (
        record is None or get_property(record.properties, b"UNIQ_KEY") != key
    ):
        # A client of Java that sends a copy itself names the message by its own id.
        topic = get_property(properties, b"RETRY_TOPIC")
        record = by_key(topic.decode("utf-8", "replace"), key) if topic and key else None
    return None if record is None else Place(record.topic, record.queue_id, record.queue_offset)


def _at(msg_id: bytes, at_position: Callable[[int], Record | None]) -> Record | None:
    try:
        _, position = parse_offset_msg_id(msg_id.decode("utf-8", "replace"))
    except (IllegalArgument, ValueError):
        return None
    return at_position(position)


def given_back_as(copy: Record) -> str:
    """Return the class that a redelivered message was in, if this is its copy; else "".

    A copy of the copy, which a member gave back in its turn, has the property, too.
    """
    taken_from = get_property(copy.properties, REDELIVERED)
    if taken_from is None or copy.reconsume_times:
        return ""
    # A pop whose time ran out may leave the number of attempts as it was.
    return "" if get_property(copy.properties, b"1ST_POP_TIME") else taken_from.decode()
