"""Messages as JSON: arbitrary bodies, safely: as text if they are UTF-8, always as base64."""

import codecs
from base64 import b64encode
from typing import Any

from pocketmq.model.message import MessageExt
from pocketmq.remoting import json_codec

LIST_BODY_SIZE = 256
BODY_SIZE_MAX = 256 << 10


def body_json(body: bytes, size_max: int) -> dict[str, Any]:
    """Return the Body of API.md: at most `size_max` bytes of it; a character split by the cut is left out.

    >>> body_json("añ".encode(), 2)["text"], body_json(b"\\xff", 9)["text"], body_json(b"[1]", 9)["json"]
    ('a', None, True)
    """
    shown = body[:size_max]
    truncated = len(shown) < len(body)
    text: str | None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=not truncated)
    except UnicodeDecodeError:
        text = None
    return {
        "size": len(body),
        "truncated": truncated,
        "text": text,
        "json": text is not None and not truncated and _is_json(text),
        "base64": b64encode(shown).decode("ascii"),
    }


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "[") and text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json_codec.loads(text)
    except ValueError:
        return False
    return True


def message_json(message: MessageExt, body_size_max: int = BODY_SIZE_MAX) -> dict[str, Any]:
    """Return the Message of API.md."""
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "tags": message.tags,
        "keys": message.keys,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "storeSize": message.stored_size,
        "properties": dict(message.properties),
        "body": body_json(message.body, body_size_max),
    }
