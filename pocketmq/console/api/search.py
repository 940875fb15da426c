"""Search: one box for everything; messages by content, in pieces; the newest of a topic as they arrive."""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any

from pocketmq.admin.views.message_window import MessageWindow
from pocketmq.admin.views.topic import kind_of_topic
from pocketmq.client.network.gather import together
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.api.topic import system_names
from pocketmq.console.errors import bad_request
from pocketmq.console.messages.message_filter import MessageFilter
from pocketmq.console.messages.message_json import LIST_BODY_SIZE, message_json
from pocketmq.console.state import Console
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import MessageCodecError, PocketMQError

FOUND_MAX = 20
# One question of everything: topics that are asked for a message, how many at once, and for how long.
TOPICS_MAX = 200
_TOGETHER = 8
_WITHIN_S = 5.0
# One piece of a search: messages that are read, at most for so long.
SCAN_MAX = 5_000
_PAGE = 250
_PIECE_MS = 2_000
# One look at a topic: messages that are shown of a queue, and at first.
TAIL_MAX = 100
_TAIL_FIRST = 20


async def everything(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return topics, groups and members whose name has the text, and messages whose id or key it is."""
    text = call.query.text("q").strip()
    part = text.lower()
    await console.figures.fresh()
    topics = [*filter(console.sight.topic, await console.admin.topics.names())]
    groups = sorted(console.figures.groups)
    own = await system_names(console)
    users = [each for each in topics if kind_of_topic(each, None, own) == "NORMAL"]
    others = [each for each in topics if each not in set(users)]
    clients = [
        {"clientId": client, "group": name}
        for name, figures in sorted(console.figures.groups.items())
        for client in figures.clients
        if part in client.lower()
    ]
    messages, is_whole = await _messages(console, text, users)
    return {
        "topics": [each for each in (*users, *others) if part in each.lower()][:FOUND_MAX],
        "groups": [each for each in groups if part in each.lower()][:FOUND_MAX],
        "clients": clients[:FOUND_MAX],
        "messages": [message_json(each, LIST_BODY_SIZE) for each in messages[:FOUND_MAX]],
        "whole": is_whole,
    }


async def _messages(
    console: Console, text: str, topics: list[str]
) -> tuple[list[MessageExt], bool]:
    """Return the messages with this id or key, newest first, and whether all topics were asked."""
    found: dict[str, MessageExt] = {}
    admin = console.admin

    async def ask(topic: str) -> None:
        try:
            for message in [
                *await admin.messages.by_unique_key(topic, text),
                *await admin.messages.by_key(topic, text, count_max=FOUND_MAX),
            ]:
                found[message.offset_msg_id] = message
        except PocketMQError:
            return

    is_whole = len(topics) <= TOPICS_MAX
    try:
        async with asyncio.timeout(_WITHIN_S):
            await _by_place(console, text, found)
            await together(ask, topics[:TOPICS_MAX], _TOGETHER)
    except TimeoutError:
        is_whole = False
    return sorted(found.values(), key=lambda each: -each.store_timestamp), is_whole


async def _by_place(console: Console, text: str, found: dict[str, MessageExt]) -> None:
    """Find by an offset id, which names one of the cluster's brokers."""
    try:
        address, _ = parse_offset_msg_id(text)
        if any(each.address == address for each in await console.admin.brokers()):
            message = await console.admin.messages.by_offset_id(text)
            found[message.offset_msg_id] = message
    except (MessageCodecError, PocketMQError):
        return


async def messages(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Look through one piece of a topic's messages between two times, newest first.

    The caller asks again with the cursor, and so may stop at any time.
    """
    query = call.query
    topic, wanted = query.text("topic"), MessageFilter.of(query)
    window = MessageWindow(
        console.admin, topic, query.number("begin", 0), query.number_or_none("end")
    )
    await window.open(query.text_or_none("cursor"))
    total, scanned = window.total, 0
    found: list[MessageExt] = []
    reached: int | None = None
    until_ms = console.clock.monotonic_ms() + _PIECE_MS
    while scanned < SCAN_MAX and len(found) < call.size():
        page = await window.page(min(_PAGE, call.size() - len(found) + _PAGE // 2))
        if not page:
            break
        scanned += len(page)
        reached = page[-1].store_timestamp
        found += [each for each in page if wanted.lets_through(each)]
        if console.clock.monotonic_ms() > until_ms:
            break
    return {
        "items": [message_json(each, LIST_BODY_SIZE) for each in found],
        "cursor": window.cursor,
        "scanned": scanned,
        "left": window.total if scanned else total,
        "reached": reached,
        "leftOut": [
            {"broker": name, "error": str(error)} for name, error in sorted(window.left_out.items())
        ],
    }


async def tail(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return what has arrived in a topic since the cursor, oldest first; without one, the newest.

    Of more than TAIL_MAX in a queue the newest, and how many were skipped. Nothing is committed.
    """
    topic, wanted = call.path["topic"], MessageFilter.of(call.query)
    status = await console.admin.topics.status(topic, partial=True)
    before = _ends(call.query.text_or_none("cursor"), topic)
    fresh: list[MessageExt] = []
    skipped = 0
    for row in status:
        at = before.get(row.queue, row.min_offset if before else row.max_offset - _TAIL_FIRST)
        begin = max(at, row.min_offset, row.max_offset - TAIL_MAX)
        skipped += max(0, begin - max(at, row.min_offset))
        if begin < row.max_offset:
            stored = console.admin.messages.within(row.queue, begin, row.max_offset)
            fresh += [each async for each in stored if wanted.lets_through(each)]
    fresh.sort(key=lambda each: (each.store_timestamp, each.queue_id, each.queue_offset))
    if not before:
        fresh, skipped = fresh[-_TAIL_FIRST:], 0
    ends = [[row.queue.broker_name, row.queue.queue_id, row.max_offset] for row in status]
    return {
        "items": [message_json(each, LIST_BODY_SIZE) for each in fresh],
        "skipped": skipped,
        "cursor": urlsafe_b64encode(json_codec.dumps(ends)).decode(),
    }


def _ends(cursor: str | None, topic: str) -> dict[MessageQueue, int]:
    """Parse a cursor. Raises: ApiError 400."""
    if cursor is None:
        return {}
    try:
        return {
            MessageQueue(topic, str(name), int(number)): int(end)
            for name, number, end in json_codec.loads(urlsafe_b64decode(cursor))
        }
    except (Base64Error, TypeError, ValueError) as error:
        raise bad_request(f"cannot read this cursor: {error}", "begin without one") from error
