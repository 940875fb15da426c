"""Offsets of groups: reset by time, skip, clone, set one queue; each shows its steps before it does them."""

from typing import Any

from pocketmq.admin import OffsetReset
from pocketmq.admin.views.group import member_count
from pocketmq.admin.views.rows import QueueRow, reset_row
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import ApiError, bad_request, not_found
from pocketmq.console.state import Console
from pocketmq.model.as_json import as_object
from pocketmq.model.message import MessageQueue

_WORDS = {"earliest": 0, "latest": -1}


async def reset(console: Console, call: ApiRequest) -> dict[str, Any]:
    value = call.body.values.get("to")
    if isinstance(value, str) and value in _WORDS:
        moment = _WORDS[value]
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        moment = value
    else:
        raise bad_request("'to' must be 'earliest', 'latest' or a time in ms")
    return await _reset(console, call, moment, "group.reset")


async def skip(console: Console, call: ApiRequest) -> dict[str, Any]:
    return await _reset(console, call, _WORDS["latest"], "group.skip")


async def _reset(console: Console, call: ApiRequest, moment: int, action: str) -> dict[str, Any]:
    group, topic = call.path["group"], call.body.text("topic")
    groups = console.admin.groups
    plan = await groups.reset(group, topic, moment, dry=True)
    skipped = sum(max(0, step.new_offset - step.old_offset) for step in plan)
    again = sum(max(0, step.old_offset - step.new_offset) for step in plan)
    call.confirm(
        action,
        {"group": group, "topic": topic, "to": moment, "skipped": skipped, "again": again},
        f"Group {group!r} will continue elsewhere in topic {topic!r}: it will skip {skipped} "
        f"messages and consume {again} again.",
        [reset_row(step) for step in plan],
    )
    done = await groups.reset(group, topic, moment)
    return {"steps": [reset_row(step) for step in done]}


async def clone(console: Console, call: ApiRequest) -> dict[str, Any]:
    target = call.path["group"]
    source, topic = call.body.text("from"), call.body.text("topic")
    groups = console.admin.groups
    rows = await groups.progress(source, topic)
    if not rows:
        raise not_found(f"group {source!r} has no offsets in topic {topic!r}")
    old = {row.queue: row.consumer_offset for row in await groups.progress(target, topic)}
    plan = [OffsetReset(row.queue, old.get(row.queue, 0), row.consumer_offset) for row in rows]
    call.confirm(
        "group.clone",
        {"group": target, "from": source, "topic": topic},
        f"Group {target!r} will have the offsets of group {source!r} in topic {topic!r}.",
        [reset_row(step) for step in plan],
    )
    done = await groups.copy_offsets(source, target, topic)
    return {"steps": [reset_row(step) for step in done]}


async def place(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Set one queue's offset; refused while members are online, since they would overwrite it."""
    group, body = call.path["group"], call.body
    queue = MessageQueue(body.text("topic"), body.text("broker"), body.number("queueId"))
    offset = body.number("offset")
    admin = console.admin
    status = {each.queue: each for each in await admin.topics.status(queue.topic)}
    if queue not in status:
        raise not_found(
            f"topic {queue.topic!r} has no queue {queue.queue_id} on {queue.broker_name!r}"
        )
    if await member_count(admin, group):
        raise ApiError(
            409,
            "CONFLICT",
            f"members of group {group!r} are online and would overwrite the offset",
            "stop them first, or reset the group by time",
        )
    rows = await admin.groups.progress(group, queue.topic)
    old = next((row.consumer_offset for row in rows if row.queue == queue), 0)
    step = OffsetReset(queue, old, offset)
    call.confirm(
        "group.offset",
        {"group": group, **as_object(QueueRow.of(queue)), "offset": offset},
        f"Group {group!r} will continue from {offset} in queue {queue.queue_id} of topic "
        f"{queue.topic!r} on {queue.broker_name}, which holds {status[queue].min_offset} to "
        f"{status[queue].max_offset}.",
        [reset_row(step)],
    )
    await admin.groups.place(group, queue, offset)
    return {"steps": [reset_row(step)]}
