"""Decodes the body of a pull answer into the messages that a listener gets (S49 to S51).

1. An unreadable record ends the pull with MessageCodecError: the same offset is pulled again, so nothing is
   skipped. A body whose compression is corrupt is delivered as stored, since retrying would not help; a
   compression whose library is missing is an error until it is installed.
2. The broker compared hash codes of tags; here the tags themselves are compared, and a message without a
   tag does not pass a subscription that names tags.
Fast, since it runs for every message: a record's fixed part is unpacked in one piece and the object is
filled without its constructor. tests/client/test_decode.py compares it with message_codec.to_messages.
"""

import logging
import re
from functools import lru_cache

from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.message import MessageExt, Property
from pocketmq.remoting.message_codec import decompress, to_message, to_messages, unpack_host
from pocketmq.remoting.record import (
    BORN_V6,
    FIXED_V4,
    MAGIC_V1,
    MAGIC_V2,
    STORE_V6,
    WRAPPED_BATCH,
    Record,
    read_record,
)
from pocketmq.remoting.subscription import SubscriptionData

log = logging.getLogger(__name__)

_PAIRS = re.compile("(?:\\A|\x02)([^\x01\x02]+)\x01([^\x02]+)").findall
_host = lru_cache(maxsize=4096)(unpack_host)
_host_hex = lru_cache(maxsize=4096)(lambda raw: raw.hex().upper())
_unpack = FIXED_V4.unpack_from
_FIXED_SIZE = FIXED_V4.size
_TAGS = Property.TAGS.value
_KEYS = Property.KEYS.value
_UNIQ_KEY = Property.UNIQ_KEY.value
_TRAN_MSG = Property.TRAN_MSG.value
_TRANSACTION_ID = Property.TRANSACTION_ID.value
_MIN_OFFSET = Property.MIN_OFFSET.value
_MAX_OFFSET = Property.MAX_OFFSET.value


@lru_cache(maxsize=4096)
def _topic(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageCodecError(f"a topic is not UTF-8: {raw!r}") from error


# IPv6 hosts, inner batches: the general decoder reads those.
_UNUSUAL = BORN_V6 | STORE_V6 | WRAPPED_BATCH


def decode_messages(body: bytes, broker_name: str, offset_delta: int = 0) -> list[MessageExt]:
    """Decode all messages of a pull answer, in order. Raises: MessageCodecError (invariant 1).

    offset_delta: of a 5.x static topic, added to each queue offset.
    """
    found: list[MessageExt] = []
    at = 0
    end = len(body)
    make = MessageExt.__new__
    while at < end:
        if end - at < _FIXED_SIZE:
            raise MessageCodecError(f"a pull answer ends within the record at byte {at}")
        (
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            position,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            prepared_offset,
            body_size,
        ) = _unpack(body, at)
        if sys_flag & _UNUSUAL or magic not in (MAGIC_V1, MAGIC_V2):
            record = read_record(body, at, check_crc=False)
            for message in _general(record, broker_name):
                message.queue_offset += offset_delta
                found.append(message)
            at += record.size
            continue
        body_at = at + _FIXED_SIZE
        topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
        stop = at + size
        if body_size < 0 or topic_at + 2 > stop or stop > end:
            raise MessageCodecError(f"the lengths of the record at byte {at} do not add up")
        topic_size = body[topic_at - 1]
        if magic == MAGIC_V2:
            topic_size |= body[topic_at - 2] << 8
        properties_at = topic_at + topic_size + 2
        if (
            properties_at > stop
            or properties_at + (body[properties_at - 2] << 8 | body[properties_at - 1]) != stop
        ):
            raise MessageCodecError(f"the lengths of the record at byte {at} do not add up")
        content = body[body_at : body_at + body_size]
        if sys_flag & 1:
            content = _unpacked(content, sys_flag)
        properties: dict[str, str] = dict(
            _PAIRS(body[properties_at:stop].decode("utf-8", "replace"))
        )
        message = make(MessageExt)
        message.topic = _topic(body[topic_at : topic_at + topic_size])
        message.body = content
        message.tags = properties.get(_TAGS)
        message.keys = properties.get(_KEYS)
        message.flag = flag
        message.properties = properties
        message.transaction_id = properties.get(_TRANSACTION_ID)
        message.broker_name = broker_name
        message.queue_id = queue_id
        message.queue_offset = queue_offset + offset_delta
        message.commit_log_offset = position
        message.sys_flag = sys_flag
        message.born_timestamp = born_ms
        message.born_host = _host(born_host)
        message.store_timestamp = store_ms
        message.store_host = _host(store_host)
        message.reconsume_times = reconsume_times
        message.prepared_transaction_offset = prepared_offset
        message.body_crc = crc
        message.stored_size = size
        message.magic = magic
        message.offset_msg_id = f"{_host_hex(store_host)}{position:016X}"
        found.append(message)
        at = stop
    return found


def _unpacked(content: bytes, sys_flag: int) -> bytes:
    try:
        return decompress(content, sys_flag)
    except MessageCodecError as error:
        if isinstance(error.__cause__, ImportError):
            raise
        log.warning("a packed body is broken, handed out as it is reason=%r", str(error))
        return content


def _general(record: Record, broker_name: str) -> list[MessageExt]:
    """Decode any record, even with inner batches, by the codec that reads everything."""
    try:
        return to_messages(record, broker_name)
    except MessageCodecError as error:
        if isinstance(error.__cause__, ImportError):
            raise
        log.warning("a packed body is broken, handed out as it is reason=%r", str(error))
        return [to_message(record, broker_name, unpack=False)]


def filter_by_tags(messages: list[MessageExt], subscription: SubscriptionData) -> list[MessageExt]:
    """Apply invariant 2. SQL92 is evaluated by the broker, class filters elsewhere."""
    tags = subscription.tags_set
    if not tags or subscription.class_filter_mode:
        return messages
    return [message for message in messages if message.tags in tags]


def complete(messages: list[MessageExt], min_offset: int, max_offset: int) -> None:
    """Add properties for listeners: the queue's bounds, and the id of a transaction."""
    low, high = str(min_offset), str(max_offset)
    for message in messages:
        properties = message.properties
        properties[_MIN_OFFSET] = low
        properties[_MAX_OFFSET] = high
        if properties.get(_TRAN_MSG) == "true":
            message.transaction_id = properties.get(_UNIQ_KEY)
