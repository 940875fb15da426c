"""Delayed messages: how many wait in each level, and which; those with a delivery time; schedules.

SCHEDULE_TOPIC_XXXX holds the levels', one queue each.
"""

from typing import TYPE_CHECKING, Any

from pocketmq.admin.views.message import waiting_in
from pocketmq.console.api.message import in_order
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import bad_request, not_found
from pocketmq.console.messages.message_json import LIST_BODY_SIZE, message_json
from pocketmq.console.state import Console
from pocketmq.remoting import java_number
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.admin.schedules import KeptSchedule

_TIMED_MAX = 64
_ACTS = {
    "pause": "Schedule {name} of topic {topic} will send nothing until it is resumed.",
    "resume": "Schedule {name} of topic {topic} will continue with its next time; what passed meanwhile "
    "is not sent.",
    "delete": "Schedule {name} of topic {topic} will be deleted. Messages that it has sent stay. "
    "This cannot be undone.",
}


async def overview(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return each master's levels, and its messages with a delivery time if it supports them."""
    timers = await _timers(console)
    rows: list[dict[str, Any]] = []
    for master in await console.admin.site.masters():
        try:
            levels = await console.admin.delays.levels(master.address)
        except PocketMQError:
            continue
        rows.append(
            {
                "broker": master.name,
                "levels": [
                    {
                        "level": each.number,
                        "name": each.name,
                        "delayMs": each.delay_ms,
                        "waiting": each.waiting,
                    }
                    for each in levels
                ],
                "timer": timers.get(master.name),
            }
        )
    return {"brokers": rows}


async def _timers(console: Console) -> dict[str, dict[str, Any]]:
    """Return them by broker name; brokers with delay levels only are left out."""
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


async def recall(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Cancel a message that waits for its delivery time."""
    broker, topic, handle = (call.body.text(name) for name in ("broker", "topic", "recallHandle"))
    call.confirm(
        "delay.recall",
        {"broker": broker, "topic": topic},
        f"A message that waits for topic {topic!r} on broker {broker} will be taken back: "
        "no group will receive it. This cannot be undone.",
    )
    return {"msgId": await console.admin.delays.recall(broker, topic, handle)}


async def level(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return what waits in one level of one broker, next due first; the cursor is the next offset."""
    query, size = call.query, call.size()
    try:
        number = java_number.long(call.path["level"])
    except ValueError:
        number = 0
    masters = await console.admin.site.masters(None, query.text_or_none("broker"))
    master = masters[0]
    levels = await console.admin.delays.levels(master.address)
    if not 1 <= number <= len(levels):
        raise not_found(f"there is no delay level {call.path['level']!r}", f"1 to {len(levels)}")
    wanted = levels[number - 1]
    at = max(wanted.begin, query.number("cursor", 0))
    items, cursor = await in_order(waiting_in(console.admin, master, wanted, at), size, wanted.end)
    return {
        "items": [
            {
                **message_json(each, LIST_BODY_SIZE),
                "due": each.store_timestamp + wanted.delay_ms,
                "realTopic": each.properties.get("REAL_TOPIC"),
            }
            for each in items
        ],
        "cursor": cursor,
        "total": wanted.waiting,
    }


async def schedules(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return the schedules of the brokers that answer, by name, without bodies."""
    kept: list[KeptSchedule] = []
    for master in await console.admin.site.masters():
        try:
            kept += await console.admin.schedules.list(broker=master.name)
        except PocketMQError:
            continue
    return {
        "items": [
            {
                "name": each.name,
                "broker": each.broker,
                "topic": each.schedule.topic,
                "cron": each.schedule.cron,
                "timeZone": each.schedule.time_zone,
                "intervalMs": each.schedule.interval_ms,
                "next": each.next_ms,
                "last": each.last_ms,
                "fired": each.fired,
                "bodySize": each.body_size,
            }
            for each in sorted(kept, key=lambda each: (each.name, each.broker))
        ]
    }


async def change_schedule(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Pause, resume or delete a schedule."""
    name, topic, act = (call.body.text(word) for word in ("name", "topic", "act"))
    if act not in _ACTS:
        raise bad_request(f"act {act!r} is unknown", "pause, resume or delete")
    about = {"name": name, "topic": topic}
    call.confirm(f"schedule.{act}", about, _ACTS[act].format_map(about))
    await getattr(console.admin.schedules, act)(name, topic)
    return {}
