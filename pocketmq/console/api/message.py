"""Messages: by time, key, place or id; the whole body; tracks; handing one to a member."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from pocketmq.admin.views.message import first_of, found_by_id, tracks_view, waiting_room
from pocketmq.admin.views.message_window import MessageWindow
from pocketmq.console.api.request import ApiRequest, Download
from pocketmq.console.errors import bad_request, not_found
from pocketmq.console.messages.message_json import LIST_BODY_SIZE, message_json
from pocketmq.console.state import Console
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import MessageCodecError, RemotingError

_KEY_COUNT_MAX = 64
_CHUNK_SIZE = 1 << 16
EXPORT_MAX = 100_000


async def list_messages(console: Console, call: ApiRequest) -> dict[str, Any]:
    topic = call.query.text("topic")
    if "key" in call.query:
        return await _by_key(console, topic, call.query.text("key"))
    if "queueId" in call.query:
        return await _from_place(console, call, topic)
    return await window(console, call, topic)


async def window(console: Console, call: ApiRequest, topic: str) -> dict[str, Any]:
    """Return a page of a topic's messages between two times, newest first."""
    items, content = await window_of(console, call, topic)
    return {"items": [message_json(each, LIST_BODY_SIZE) for each in items], **content}


async def window_of(
    console: Console, call: ApiRequest, topic: str
) -> tuple[list[MessageExt], dict[str, Any]]:
    """Return the messages of such a page, and the rest of its answer."""
    query = call.query
    size = call.size()
    end_ms = query.number_or_none("end")
    found = MessageWindow(console.admin, topic, query.number("begin", 0), end_ms)
    await found.open(query.text_or_none("cursor"))
    total = found.total
    items = await found.page(size)
    return items, {"cursor": found.cursor, "total": total, "leftOut": _rows(found.left_out)}


async def _by_key(console: Console, topic: str, key: str) -> dict[str, Any]:
    left_out: dict[str, RemotingError] = {}
    found = await console.admin.messages.by_key(
        topic, key, count_max=_KEY_COUNT_MAX, left_out=left_out
    )
    items = [message_json(each, LIST_BODY_SIZE) for each in reversed(found)]
    return {"items": items, "cursor": None, "total": len(items), "leftOut": _rows(left_out)}


def _rows(left_out: Mapping[str, RemotingError]) -> list[dict[str, str]]:
    return [{"broker": name, "error": str(error)} for name, error in sorted(left_out.items())]


async def _from_place(console: Console, call: ApiRequest, topic: str) -> dict[str, Any]:
    """Return messages from an offset of one queue on, in order; the cursor is the next offset."""
    query, size = call.query, call.size()
    queue = MessageQueue(topic, query.text("broker"), query.number("queueId"))
    addresses = dict(await console.admin.site.masters_of(topic))
    if queue.broker_name not in addresses:
        raise not_found(f"topic {topic!r} is not on a broker {queue.broker_name!r}")
    address = addresses[queue.broker_name]
    api = console.admin.site.api
    low, high = await api.min_offset(address, queue), await api.max_offset(address, queue)
    at = max(low, query.number("cursor" if "cursor" in query else "offset", 0))
    items, cursor = await in_order(
        console.admin.messages.within(queue, at, high, address=address), size, high
    )
    return {
        "items": [message_json(each, LIST_BODY_SIZE) for each in items],
        "cursor": cursor,
        "total": high - low,
        "leftOut": [],
    }


async def in_order(
    stored: AsyncIterator[MessageExt], size: int, end: int
) -> tuple[list[MessageExt], str | None]:
    """Return a page of one queue's messages, and the next offset: None if nothing is left before `end`."""
    items = await first_of(stored, size)
    following = items[-1].queue_offset + 1 if items else end
    return items, str(following) if following < end else None


async def find(console: Console, msg_id: str, topic: str | None) -> MessageExt:
    """Return the message of an id. An offset id names an address: only brokers of this cluster are asked.

    Raises: ApiError 400, 404.
    """
    try:
        address, _ = parse_offset_msg_id(msg_id)
    except MessageCodecError:
        address = ""
    if topic is None:
        known = {each.address for each in await console.admin.brokers()}
        if not address:
            raise bad_request(
                f"{msg_id!r} is not an offset message id", "a unique key needs its topic, too"
            )
        if address not in known:
            raise not_found(
                f"no broker of this cluster is at {address}, which the id names",
                "if it is a unique key, give its topic, too",
            )
        return await console.admin.messages.by_id(msg_id)
    return await found_by_id(console.admin, msg_id, topic)


async def export(console: Console, call: ApiRequest) -> Download:
    """Return search results as a file: by key, or a topic's between two times, oldest first per queue."""
    query, topic = call.query, call.query.text("topic")
    # Asked before the answer begins, while an error can still be told.
    await console.admin.topics.route(topic)
    if "key" in query:
        by_key = await console.admin.messages.by_key(
            topic, query.text("key"), count_max=_KEY_COUNT_MAX
        )
        return message_lines(console, topic, _each(by_key))
    found = console.admin.messages.between(
        topic, begin_ms=query.number("begin", 0), end_ms=query.number_or_none("end")
    )
    return message_lines(console, topic, found)


async def _each(messages: Iterable[MessageExt]) -> AsyncIterator[MessageExt]:
    for each in messages:
        yield each


def message_lines(console: Console, name: str, found: AsyncIterator[MessageExt]) -> Download:
    """Return messages as JSON lines, readable by `pocketmq message import` and `dlq import`, too.

    At most EXPORT_MAX: for whole topics there is the command line.
    """
    return Download(f"{name}.jsonl", "application/x-ndjson", _lines(console, found))


async def _lines(console: Console, messages: AsyncIterator[MessageExt]) -> AsyncIterator[bytes]:
    count = 0
    async for message in messages:
        if console.closing.is_set() or count == EXPORT_MAX:
            return
        count += 1
        row = message_json(message, len(message.body))
        # As the command line names it.
        row["bodyBase64"] = row["body"]["base64"]
        row["origin"] = origin_of(row["properties"])
        yield json_codec.dumps(row) + b"\n"


def origin_of(properties: Mapping[str, str]) -> dict[str, str | None]:
    """Return where a dead letter came from, from the properties that 5.x or else 4.9 writes."""
    return {
        "topic": properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC"),
        "msgId": properties.get("DLQ_ORIGIN_MESSAGE_ID") or properties.get("ORIGIN_MESSAGE_ID"),
    }


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    found = await find(console, call.path["id"], call.query.text_or_none("topic"))
    return message_json(found)


async def body(console: Console, call: ApiRequest) -> Download:
    found = await find(console, call.path["id"], call.query.text_or_none("topic"))
    return Download(f"{found.msg_id}.bin", "application/octet-stream", _chunks(found.body))


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _CHUNK_SIZE):
        yield data[start : start + _CHUNK_SIZE]


async def track(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return RocketMQ's track type and PocketMQ's verdict, group by group (S88, S89)."""
    msg_id = call.path["id"]
    topic, group = call.query.text_or_none("topic"), call.query.text_or_none("group")
    message = await find(console, msg_id, topic)
    view = await tracks_view(console.admin, message, group)
    room = await waiting_room(console.admin, message)
    return {
        "recordedSince": view.recorded_since,
        "waits": None
        if room is None
        else {"kind": room.kind, "topic": room.topic, "due": room.due_ms},
        "tracks": [
            {
                "group": each.group,
                "trackType": each.track_type,
                "verdict": each.verdict,
                "severity": None if each.verdict is None else each.verdict.severity,
                "text": each.text,
                "deliveries": each.deliveries,
            }
            for each in view.tracks
        ],
    }


async def consume(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Hand a message to one member, bypassing queues and offsets."""
    fields = call.body
    group, client = fields.text("group"), fields.text("clientId")
    message = await find(console, call.path["id"], fields.text_or_none("topic"))
    call.confirm(
        "message.consume",
        {"id": message.msg_id, "topic": message.topic, "group": group, "clientId": client},
        f"Member {client} of group {group!r} will receive message {message.msg_id} of topic "
        f"{message.topic!r} at once, even if it had it before. No offset changes.",
    )
    result = await console.admin.messages.consume_directly(message, group, client)
    return {"result": result.result, "spentMs": result.spent_ms, "remark": result.remark}
