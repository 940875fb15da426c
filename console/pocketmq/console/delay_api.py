"""Delayed messages: how many wait in each level, and which; those for a time of their own.

SCHEDULE_TOPIC_XXXX holds the levels', one queue each.
"""

from typing import Any

from pocketmq.console.call import Call
from pocketmq.console.errors import not_found
from pocketmq.console.message_json import LIST_BODY_SIZE, message_json
from pocketmq.console.state import Console
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.names import SCHEDULE_TOPIC

_OFFSET_KEY = "scheduleMessageOffset_"
_DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_TIMED_MAX = 64
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> list[tuple[str, int]]:
    """Names and ms of the levels, as messageDelayLevel has them.

    >>> parse_levels("1s 2m")
    [('1s', 1000), ('2m', 120000)]
    """
    return [(word, int(word[:-1]) * _UNITS_MS[word[-1]]) for word in text.split()]


async def _levels(console: Console, address: str) -> list[tuple[str, int]]:
    settings = await console.admin.settings.broker(address)
    return parse_levels(settings.get("messageDelayLevel", _DEFAULT_LEVELS))


def _span(runtime: dict[str, str], level: int) -> tuple[int, int]:
    """The offsets of a level that wait: next to be delivered, end."""
    begin, _, end = runtime.get(f"{_OFFSET_KEY}{level}", "0,0").partition(",")
    return int(begin), max(int(begin), int(end))


async def overview(console: Console, call: Call) -> dict[str, Any]:
    """Each master's levels, and its messages for a time of their own where it knows of such."""
    timers = await _timers(console)
    rows: list[dict[str, Any]] = []
    for master in await console.admin.site.masters():
        try:
            levels = await _levels(console, master.address)
            runtime = await console.admin.settings.runtime(master.address)
        except PocketMQError:
            continue
        rows.append(
            {
                "broker": master.name,
                "levels": [
                    {
                        "level": level,
                        "name": name,
                        "delayMs": delay_ms,
                        "waiting": _span(runtime, level)[1] - _span(runtime, level)[0],
                    }
                    for level, (name, delay_ms) in enumerate(levels, 1)
                ],
                "timer": timers.get(master.name),
            }
        )
    return {"brokers": rows}


async def _timers(console: Console) -> dict[str, dict[str, Any]]:
    """By broker name; brokers that know of delay levels only are left out."""
    try:
        found = await console.admin.delays.list(count=_TIMED_MAX)
    except PocketMQError:
        return {}
    return {
        each.broker: {
            "waiting": sum(each.counts.values()),
            "topics": each.counts,
            "behindMs": each.behind_ms,
            "next": None
            if each.messages is None
            else [
                {
                    "topic": message.topic,
                    "queueId": message.queue_id,
                    "msgId": message.msg_id,
                    "offsetMsgId": message.offset_msg_id or None,
                    "recallHandle": message.recall_handle,
                    "due": message.deliver_ms,
                    "storeTimestamp": message.store_ms,
                    "storeSize": message.store_size,
                }
                for message in each.messages
            ],
        }
        for each in found
        if each.counts is not None
    }


async def recall(console: Console, call: Call) -> dict[str, Any]:
    """Take one back that waits for a time of its own."""
    broker, topic, handle = (call.body.text(name) for name in ("broker", "topic", "recallHandle"))
    call.confirm(
        "delay.recall",
        {"broker": broker, "topic": topic},
        f"A message that waits for topic {topic!r} on broker {broker} will be taken back: nobody will "
        "get it. That cannot be undone.",
    )
    return {"msgId": await console.admin.delays.recall(broker, topic, handle)}


async def level(console: Console, call: Call) -> dict[str, Any]:
    """What waits in one level of one broker, next due first; the cursor is the next offset."""
    query, size = call.query, call.size()
    try:
        number = int(call.path["level"])
    except ValueError:
        number = 0
    masters = await console.admin.site.masters(None, query.text_or_none("broker"))
    master = masters[0]
    levels = await _levels(console, master.address)
    if not 1 <= number <= len(levels):
        raise not_found(f"there is no delay level {call.path['level']!r}", f"1 to {len(levels)}")
    _, delay_ms = levels[number - 1]
    runtime = await console.admin.settings.runtime(master.address)
    begin, end = _span(runtime, number)
    at = max(begin, query.number("cursor", 0))
    queue = MessageQueue(SCHEDULE_TOPIC, master.name, number - 1)
    items: list[MessageExt] = []
    while at < end and len(items) < size:
        found, following = await console.admin.messages.since(queue, at, address=master.address)
        if following <= at:
            break
        items += found
        at = following
    items = [each for each in items if each.queue_offset < end][:size]
    if items:
        at = items[-1].queue_offset + 1
    return {
        "items": [
            {
                **message_json(each, LIST_BODY_SIZE),
                "due": each.store_timestamp + delay_ms,
                "realTopic": each.properties.get("REAL_TOPIC"),
            }
            for each in items
        ],
        "cursor": str(at) if items and at < end else None,
        "total": end - begin,
    }
