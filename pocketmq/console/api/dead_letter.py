"""Dead letters: groups that have some, the letters, resending them to their group, export."""

import asyncio
import re
from typing import Any

from pocketmq.admin.views.message_window import MessageWindow
from pocketmq.admin.views.topic import count_of
from pocketmq.client.errors import NoRoute
from pocketmq.client.network.gather import together
from pocketmq.console.api.message import find, message_lines, origin_of, window_of
from pocketmq.console.api.request import SIZE_MAX, ApiRequest, Download, paged
from pocketmq.console.errors import ApiError, bad_request, not_found
from pocketmq.console.messages.message_json import LIST_BODY_SIZE, message_json
from pocketmq.console.state import Console
from pocketmq.model.message import MessageExt
from pocketmq.model.names import DLQ_PREFIX, dlq_topic
from pocketmq.model.track import Verdict
from pocketmq.remoting.errors import MessageCodecError, PocketMQError

# Letters that are looked at for their reasons, a question each, and how many at once.
REASONS_MAX = 200
_TOGETHER = 8


async def list_groups(console: Console, call: ApiRequest) -> dict[str, Any]:
    page, size = call.page()
    seen = filter(console.sight.topic, await console.admin.topics.names())
    names = [each for each in seen if each.startswith(DLQ_PREFIX)]
    content = paged(names, page, size)
    content["items"] = [
        {
            "group": name.removeprefix(DLQ_PREFIX),
            "topic": name,
            "messages": await _count(console, name),
        }
        for name in content["items"]
    ]
    return content


async def _count(console: Console, topic: str) -> int | None:
    try:
        status = await console.admin.topics.status(topic, partial=True)
    except PocketMQError:
        return None
    return count_of(status)


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    group, topic = call.path["group"], dlq_topic(call.path["group"])
    msg_id = call.query.text_or_none("id")
    try:
        if msg_id is None:
            letters, content = await window_of(console, call, topic)
        else:
            letters = await _by_id(console, msg_id, topic)
            content = {"cursor": None, "total": len(letters), "leftOut": []}
    except NoRoute:
        raise not_found(
            f"group {group!r} has no dead letters",
            "a message becomes one when the group has failed to consume it retryMaxTimes times",
        ) from None
    limit = await _retries_max(console, group)
    async with asyncio.TaskGroup() as tasks:
        rows = [tasks.create_task(_row(console, group, each, limit)) for each in letters]
    return {**content, "items": [row.result() for row in rows]}


async def _by_id(console: Console, msg_id: str, topic: str) -> list[MessageExt]:
    """Find by the original message's id, which its letters keep, or by a letter's own; newest first."""
    found = await console.admin.messages.by_unique_key(topic, msg_id)
    if found:
        return found[::-1]
    try:
        message = await find(console, msg_id, None)
    except (ApiError, PocketMQError, MessageCodecError):
        return []
    return [message] if message.topic == topic else []


async def _retries_max(console: Console, group: str) -> int | None:
    """Return how many retries the group has before a message is dead-lettered, as configured."""
    try:
        tables = await console.admin.groups.configs(partial=True)
    except PocketMQError:
        return None
    return max(
        (table[group].retry_max_times for table in tables.values() if group in table), default=None
    )


async def _row(
    console: Console, group: str, letter: MessageExt, limit: int | None
) -> dict[str, Any]:
    row = message_json(letter, LIST_BODY_SIZE)
    origin = row["origin"] = origin_of(row["properties"])
    row["retryMaxTimes"] = limit
    row["reason"], row["sentAgain"] = None, []
    try:
        row["reason"] = await _reason(console, group, letter, origin)
        row["sentAgain"] = await console.admin.messages.sent_again(letter, group)
    except PocketMQError:
        # A broker that does not answer: the letter itself is still worth showing.
        pass
    return row


async def _reason(
    console: Console, group: str, letter: MessageExt, origin: dict[str, str | None]
) -> str | None:
    """Return why it was dead-lettered, as recorded by the broker; None if it was not recorded."""
    if origin["topic"] is None:
        return None
    told = await console.admin.doctor.track(
        msg_id=letter.properties.get("UNIQ_KEY") or origin["msgId"],
        topic=origin["topic"],
        group=group,
    )
    for each in () if told is None else told["tracks"]:
        if each["group"] == group and each["verdict"] == Verdict.DEAD_LETTERED:
            text = str(each["text"])
            # Behind the sentence that says where the letter lies.
            return text.partition(f"{letter.offset_msg_id}: ")[2] or text
    return None


async def reasons(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Group the newest letters by reason, origin and tag; the most frequent first."""
    group, topic = call.path["group"], dlq_topic(call.path["group"])
    window = MessageWindow(console.admin, topic, call.query.number("begin", 0), None)
    await window.open(None)
    total = window.total
    letters = await window.page(REASONS_MAX)

    async def why(letter: MessageExt) -> str | None:
        try:
            return await _reason(console, group, letter, origin_of(letter.properties))
        except PocketMQError:
            return None

    told = await together(why, letters, _TOGETHER)
    rows: dict[tuple[str | None, str | None, str | None], dict[str, Any]] = {}
    for letter, text in zip(letters, told, strict=True):
        origin, tag = origin_of(letter.properties)["topic"], letter.properties.get("TAGS")
        reason = None if text is None else _alike(text)
        empty: dict[str, Any] = {
            "reason": reason,
            "topic": origin,
            "tag": tag,
            "count": 0,
            "ids": [],
        }
        row = rows.setdefault((reason, origin, tag), empty)
        row["count"] += 1
        row["ids"].append(letter.offset_msg_id)
        row.setdefault("newest", letter.store_timestamp)
        row["oldest"] = letter.store_timestamp
    items = sorted(rows.values(), key=lambda row: -row["count"])
    return {"items": items, "looked": len(letters), "total": total}


def _alike(text: str) -> str:
    """Return a reason without what differs from letter to letter: where it went, and who sent it back.

    >>> _alike("to %DLQ%g: it failed 3 times, which is the limit, sent back by 127.0.0.1:4711")
    'it failed 3 times, which is the limit'
    """
    text = re.sub(r"^to %DLQ%\S*: ", "", text)
    return re.sub(r",? sent back by \S+", "", text)


async def resend(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Resend one or many; failures are reported one by one."""
    group, ids = call.path["group"], call.body.texts("ids")
    if not 1 <= len(ids) <= SIZE_MAX:
        raise bad_request(f"'ids' must name 1 to {SIZE_MAX} dead letters")
    letters = "one dead letter" if len(ids) == 1 else f"{len(ids)} dead letters"
    call.confirm(
        "dlq.resend",
        {"group": group, "count": len(ids)},
        f"Group {group!r}, and no other, will receive {letters} again. The letters stay where "
        "they are, and retries are counted from zero.",
    )
    results = [await _resend(console, group, each) for each in ids]
    sent = sum(each["error"] is None for each in results)
    return {"sent": sent, "failed": len(results) - sent, "results": results}


async def _resend(console: Console, group: str, msg_id: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": msg_id, "status": None, "msgId": None, "error": None}
    topic = dlq_topic(group)
    try:
        message = await find(console, msg_id, topic)
        if message.topic != topic:
            row["error"] = f"this message is in topic {message.topic!r}, not in {topic!r}"
            return row
        result = await console.admin.messages.resend_dead(message, group)
    except (PocketMQError, MessageCodecError) as error:
        row["error"] = str(error)
        return row
    row.update(status=str(result.status), msgId=result.msg_id)
    return row


async def export(console: Console, call: ApiRequest) -> Download:
    group = call.path["group"]
    begin, end = call.query.number("begin", 0), call.query.number_or_none("end")
    topic = dlq_topic(group)
    # Asked before the answer begins, while an error can still be told.
    await console.admin.topics.route(topic)
    found = console.admin.messages.between(topic, begin_ms=begin, end_ms=end)
    return message_lines(console, f"{group}.dead-letters", found)
