"""Envelope: a kombu message as a RocketMQ message.

    body         one line of JSON with what kombu says of the message, then the payload as it was serialized
    KEYS, TAGS   the task's id and its name, so that a task can be looked up and filtered like any message

deliver_at_ms in the JSON is when the broker was asked to deliver it, expires_at_ms when it is worthless.
"""

import re
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard

from kombu.utils import json as kombu_json

from pocketmq.client import Message, MessageExt
from pocketmq.integrations.queue_names import topic_of

PRIORITY = "_SYS_MSG_PRIORITY_"
PUT_BACK = "PUT_BACK"
"""The property of a message that a worker gave back: it is `redelivered`, though it counts as no failure."""

# Names of the system's properties are in capitals.
_OF_SYSTEM = re.compile(r"[A-Z_0-9]+\Z|__|1ST_POP_TIME")
_NO_KEY = re.compile(r"\s")


class DueTime(NamedTuple):
    """When a message is to be delivered: at_ms None: now. Times in ms since 1970."""

    at_ms: int | None
    expires_ms: int | None


class EtaWaits(NamedTuple):
    """How long tasks wait in the broker: none that is due sooner than min_ms, hop_ms at once."""

    min_ms: int
    hop_ms: int


def delivery(payload: dict[str, Any], now_ms: int, waits: EtaWaits) -> DueTime:
    """Return when the broker is to deliver a task: at its ETA, or after a hop, when it is sent on."""
    expiration = payload["properties"].get("expiration")
    expires_ms = None if expiration is None else now_ms + int(float(expiration))
    eta_ms = _eta_ms(payload)
    # Brokers deliver to the second: the worker waits for the rest.
    if eta_ms is None or eta_ms // 1000 * 1000 <= now_ms + waits.min_ms:
        return DueTime(None, expires_ms)
    return DueTime(min(eta_ms // 1000 * 1000, now_ms + waits.hop_ms), expires_ms)


def _eta_ms(payload: dict[str, Any]) -> int | None:
    eta = (payload.get("headers") or {}).get("eta")
    if not isinstance(eta, str | datetime):
        return None
    try:
        at = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    except ValueError:
        return None
    # Of a time without a zone only the worker knows what it means.
    return None if at.tzinfo is None else int(at.timestamp() * 1000)


def pack(
    topic: str,
    payload: dict[str, Any],
    due: DueTime,
    *,
    priority: int | None,
    tags: str | None = None,
) -> Message:
    """Return the message. priority: None where the topic has none."""
    body = payload.get("body")
    head = {name: value for name, value in payload.items() if name != "body"}
    head["text"] = isinstance(body, str)
    head["deliver_at_ms"], head["expires_at_ms"] = due
    content = body.encode() if isinstance(body, str) else bytes(body or b"")
    headers = payload.get("headers") or {}
    key = headers.get("id") or payload["properties"].get("correlation_id")
    task = headers.get("task")
    properties = {} if priority is None else {PRIORITY: str(priority)}
    return Message(
        topic,
        kombu_json.dumps(head).encode() + b"\n" + content,
        tags=tags or (topic_of(task) if isinstance(task, str) and task else None),
        keys=key if isinstance(key, str) and key and not _NO_KEY.search(key) else None,
        properties=properties,
    )


def unpack(message: MessageExt) -> dict[str, Any]:
    """Return kombu's message. Raises: ValueError if it is no envelope."""
    head, newline, content = message.body.partition(b"\n")
    try:
        payload = kombu_json.loads(head.decode()) if newline else None
    except Exception as error:
        # Kombu makes objects of what says that it is one: any error may come of another program's JSON.
        raise ValueError(f"message {message.msg_id} was not sent by kombu") from error
    if not _is_envelope(payload):
        raise ValueError(f"message {message.msg_id} was not sent by kombu")
    payload["body"] = content.decode() if payload.pop("text", False) else content
    return payload


def _is_envelope(payload: object) -> TypeGuard[dict[str, Any]]:
    """Return True if what is looked at before a worker has the message is of the right types."""
    if not isinstance(payload, dict) or not isinstance(payload.get("properties"), dict):
        return False
    times = (payload.get("deliver_at_ms"), payload.get("expires_at_ms"))
    tables = (payload.get("headers") or {}, payload["properties"].get("delivery_info", {}))
    return all(each is None or type(each) is int for each in times) and all(
        isinstance(each, dict) for each in tables
    )


def foreign(message: MessageExt) -> dict[str, Any]:
    """Return a message of another program: its properties are the headers (a task needs `id`, `task`)."""
    texts = {
        name: value for name, value in message.properties.items() if not _OF_SYSTEM.match(name)
    }
    return {
        "body": message.body,
        "content-type": texts.pop("content-type", "application/data"),
        "content-encoding": texts.pop("content-encoding", "binary"),
        "headers": texts,
        "properties": {"correlation_id": texts.get("id"), "delivery_info": {}},
    }


def is_expired(
    payload: dict[str, Any], message: MessageExt, ttl_ms: int | None, now_ms: int
) -> bool:
    """Return whether the sender's expiration or the queue's time to live is over."""
    expires_ms = payload.get("expires_at_ms")
    if expires_ms is not None and now_ms >= expires_ms:
        return True
    return ttl_ms is not None and now_ms >= message.store_timestamp + ttl_ms


def is_to_wait(payload: dict[str, Any], now_ms: int) -> bool:
    """Return whether a task that has waited a hop in the broker is to wait for another."""
    asked_ms = payload.get("deliver_at_ms")
    eta_ms = _eta_ms(payload)
    if asked_ms is None or eta_ms is None:
        return False
    # A broker without timers delivers at once: then the worker waits, as with any other transport.
    return now_ms >= asked_ms - _SLACK_MS and eta_ms > now_ms + _SLACK_MS


# Clocks of two machines may differ by as much.
_SLACK_MS = 60_000
