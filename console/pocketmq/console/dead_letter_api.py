"""Dead letters: groups that have some, the letters, give them to their group again, export them."""

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

from pocketmq.client.errors import NoRoute
from pocketmq.console.call import SIZE_MAX, Call, Download, paged
from pocketmq.console.errors import bad_request, not_found
from pocketmq.console.message_api import find, window
from pocketmq.console.message_json import message_json
from pocketmq.console.state import Console
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import MessageCodecError, PocketMQError
from pocketmq.remoting.message import MessageExt
from pocketmq.remoting.names import DLQ_PREFIX, dlq_topic


async def list_groups(console: Console, call: Call) -> dict[str, Any]:
    page, size = call.page()
    names = [each for each in await console.admin.topics.names() if each.startswith(DLQ_PREFIX)]
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
    return sum(each.max_offset - each.min_offset for each in status)


async def show(console: Console, call: Call) -> dict[str, Any]:
    group = call.path["group"]
    try:
        content = await window(console, call, dlq_topic(group))
    except NoRoute:
        raise not_found(
            f"group {group!r} has no dead letters",
            "a message becomes one when the group has failed to consume it retryMaxTimes times",
        ) from None
    for item in content["items"]:
        item["origin"] = _origin(item["properties"])
    return content


def _origin(properties: dict[str, str]) -> dict[str, str | None]:
    """Where a dead letter came from, by what 5.x or else 4.9 writes into it."""
    return {
        "topic": properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC"),
        "msgId": properties.get("DLQ_ORIGIN_MESSAGE_ID") or properties.get("ORIGIN_MESSAGE_ID"),
    }


async def resend(console: Console, call: Call) -> dict[str, Any]:
    """One or many; what fails is told one by one."""
    group, ids = call.path["group"], call.body.texts("ids")
    if not 1 <= len(ids) <= SIZE_MAX:
        raise bad_request(f"'ids' must name 1 to {SIZE_MAX} dead letters")
    letters = "one dead letter" if len(ids) == 1 else f"{len(ids)} dead letters"
    call.confirm(
        "dlq.resend",
        {"group": group, "count": len(ids)},
        f"Group {group!r}, and no other, will be given {letters} again. The letters stay where they "
        "are, and the count of failures begins anew.",
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


async def export(console: Console, call: Call) -> Download:
    group = call.path["group"]
    begin, end = call.query.number("begin", 0), call.query.number_or_none("end")
    topic = dlq_topic(group)
    # Asked before the answer begins, while an error can still be told.
    await console.admin.topics.route(topic)
    found = console.admin.messages.between(topic, begin_ms=begin, end_ms=end)
    return Download(f"{group}.dead-letters.jsonl", "application/x-ndjson", _lines(console, found))


async def _lines(console: Console, messages: AsyncIterator[MessageExt]) -> AsyncIterator[bytes]:
    async for message in messages:
        if console.closing.is_set():
            return
        row = message_json(message, len(message.body))
        row["body"]["base64"] = b64encode(message.body).decode("ascii")
        row["origin"] = _origin(row["properties"])
        yield json_codec.dumps(row) + b"\n"
