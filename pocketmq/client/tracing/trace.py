"""The records of RocketMQ's message trace, as Java writes and mqadmin reads them (wire.md 4.9).

    record  field 0x01 field 0x01 ... 0x02
    Pub             time region group topic msgId tags keys storeHost bodyLength cost type offsetMsgId success
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys contextCode time group
    EndTransaction  time region group topic msgId tags keys storeHost type transactionId state fromCheck

Source: TraceDataEncoder, TraceConstants, RocketMQ 4.9.7.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

FIELD = "\x01"
RECORD = "\x02"


class TracedMessageType(IntEnum):
    """What kind of message a Pub record is about."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ContextCode(IntEnum):
    """How a listener call ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record with the keys to find it by."""

    text: str
    keys: tuple[str, ...]
    topic: str
    region: str


def _record(*fields: object) -> str:
    return FIELD.join(_text(each) for each in fields) + RECORD


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys(msg_id: str, keys: str | None) -> tuple[str, ...]:
    return (msg_id, *(keys or "").split())


def pub(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    body_size: int,
    cost_ms: int,
    message_type: TracedMessageType,
    offset_msg_id: str,
    success: bool,
) -> TraceRecord:
    """Return the record of a sent message; a batch has its ids joined by commas."""
    fields = (
        "Pub",
        time_ms,
        region,
        group,
        topic,
        msg_id,
        tags,
        keys,
        store_host,
        body_size,
        cost_ms,
        int(message_type),
        offset_msg_id,
        success,
    )
    found = (
        tuple(each for one in msg_id.split(",") for each in _keys(one, None)) + _keys("", keys)[1:]
    )
    return TraceRecord(_record(*fields), found, topic, region)


def request_id() -> str:
    """Return an id that connects SubBefore and SubAfter of one listener call."""
    return uuid.uuid4().hex.upper()


def sub_before(
    *,
    time_ms: int,
    region: str,
    group: str,
    request: str,
    msg_id: str,
    retry_times: int,
    keys: str | None,
    topic: str,
) -> TraceRecord:
    """Return the record written before a listener gets the message."""
    text = _record("SubBefore", time_ms, region, group, request, msg_id, retry_times, keys)
    return TraceRecord(text, _keys(msg_id, keys), topic, region)


def sub_after(
    *,
    request: str,
    msg_id: str,
    cost_ms: int,
    success: bool,
    keys: str | None,
    context_code: ContextCode,
    time_ms: int,
    group: str,
    topic: str,
    region: str,
) -> TraceRecord:
    """Return the record written after a listener handled the message."""
    text = _record(
        "SubAfter",
        request,
        msg_id,
        cost_ms,
        success,
        keys,
        int(context_code),
        time_ms,
        group,
    )
    return TraceRecord(text, _keys(msg_id, keys), topic, region)


def end_transaction(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    message_type: TracedMessageType,
    transaction_id: str | None,
    state: str,
    from_check: bool,
) -> TraceRecord:
    """Return the record of a transaction that was committed, rolled back or left open."""
    text = _record(
        "EndTransaction",
        time_ms,
        region,
        group,
        topic,
        msg_id,
        tags,
        keys,
        store_host,
        int(message_type),
        transaction_id,
        state,
        from_check,
    )
    return TraceRecord(text, _keys(msg_id, keys), topic, region)


@dataclass(frozen=True, slots=True)
class TraceMessage:
    """Records that travel together: the body of a trace message and the keys to find it by."""

    body: bytes
    keys: str


def pack(records: Sequence[TraceRecord], size_max: int) -> list[TraceMessage]:
    """Pack records into messages of at most size_max bytes, in order; a larger record goes alone."""
    found: list[TraceMessage] = []
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = 0
    for record in records:
        length = len(record.text.encode("utf-8"))
        if texts and size + length > size_max:
            found.append(TraceMessage("".join(texts).encode("utf-8"), " ".join(keys)))
            texts, keys, size = [], {}, 0
        texts.append(record.text)
        keys.update(dict.fromkeys(record.keys))
        size += length
    if texts:
        found.append(TraceMessage("".join(texts).encode("utf-8"), " ".join(keys)))
    return found


def parse(body: bytes) -> list[list[str]]:
    """Parse the fields of each record of a trace message; the inverse of `pack`."""
    return [
        record.split(FIELD) for record in body.decode("utf-8", "replace").split(RECORD) if record
    ]
