"""Topics: list, show, create, change, delete, send a test message."""

from typing import Any

from pocketmq.admin import TopicConfig
from pocketmq.admin.views.group import lag_of
from pocketmq.admin.views.rows import QueueProgressRow, QueueStatusRow, TopicConfigRow
from pocketmq.admin.views.topic import (
    TOPIC_TYPES,
    kind_of_topic,
    own_names,
    topic_view,
)
from pocketmq.client.errors import NoRoute
from pocketmq.console.api.request import ApiRequest, paged, total
from pocketmq.console.errors import ApiError, bad_request, not_found
from pocketmq.console.state import Console
from pocketmq.model.as_json import as_object
from pocketmq.model.names import topic_fault
from pocketmq.remoting.errors import PocketMQError

_MESSAGE_TYPE = "message.type"
_TYPES_KEPT_MS = 30_000
_BODY_SIZE_MAX = 4 << 20


async def system_names(console: Console) -> frozenset[str]:
    """Return the names that brokers keep for themselves."""
    return own_names(await console.admin.brokers())


async def list_topics(console: Console, call: ApiRequest) -> dict[str, Any]:
    page, size = call.page()
    wanted = set(call.query.texts("type"))
    part = call.query.text("q", "").lower()
    unknown = wanted - set(TOPIC_TYPES)
    if unknown:
        raise bad_request(f"type is one of {', '.join(TOPIC_TYPES)}, not {min(unknown)!r}")
    admin = console.admin
    names = filter(console.sight.topic, await admin.topics.names())
    system = await system_names(console)
    types = await _message_types(console)
    await console.figures.fresh()
    rates = console.figures.topic_figures()
    counts = dict.fromkeys(TOPIC_TYPES, 0)
    rows: list[dict[str, Any]] = []
    for name in names:
        kind = kind_of_topic(name, types.get(name), system)
        counts[kind] += 1
        if (not wanted or kind in wanted) and part in name.lower():
            rows.append({"topic": name, "type": kind, "dynamic": rates.get(name, _UNKNOWN)})
    rows.sort(key=lambda row: (TOPIC_TYPES.index(row["type"]) >= _FIRST_SYSTEM, row["topic"]))
    figures = {each: lambda row, each=each: row["dynamic"][each] for each in _UNKNOWN}
    return {
        **paged(call.sorted(rows, figures), page, size),
        "counts": counts,
        "totals": {each: total(map(figure, rows)) for each, figure in figures.items()},
    }


_UNKNOWN: dict[str, float | None] = dict.fromkeys(
    ("in", "out", "lag", "messages", "bytes", "queues")
)
_RATES: dict[str, float | None] = dict.fromkeys(("in", "out", "lag"))


# Users' own topics come first in a list, then those that belong to groups and to the system.
_FIRST_SYSTEM = TOPIC_TYPES.index("RETRY")


async def _message_types(console: Console) -> dict[str, str]:
    """Return the attribute message.type of the topics that have one, from the brokers that answer.

    Brokers return it for all topics or for one: the answer is cached for a while, for viewers of a list.
    """
    now_ms = console.clock.monotonic_ms()
    if console.message_types is not None and now_ms < console.message_types_until_ms:
        return console.message_types
    found: dict[str, str] = {}
    try:
        tables = await console.admin.topics.all_configs(partial=True)
    except PocketMQError:
        return found
    for table in tables.values():
        for name, config in table.items():
            kind = config.attributes.get(_MESSAGE_TYPE)
            if kind:
                found[name] = kind
    console.message_types, console.message_types_until_ms = found, now_ms + _TYPES_KEPT_MS
    return found


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["topic"]
    view = await topic_view(console.admin, name, partial=True)
    configs = await _configs(console, name)
    await console.figures.fresh()
    rates = console.figures.topic_rates().get(name, _RATES)
    types = [each.attributes.get(_MESSAGE_TYPE) for each in configs.values()]
    return {
        "topic": name,
        "type": kind_of_topic(name, next(filter(None, types), None), await system_names(console)),
        "configs": [
            as_object(TopicConfigRow.of(broker, each)) for broker, each in sorted(configs.items())
        ],
        "route": {
            "queues": [
                {
                    "broker": each.broker_name,
                    "readQueues": each.read_queue_nums,
                    "writeQueues": each.write_queue_nums,
                    "perm": each.perm,
                }
                for each in view.route.queues
            ],
            "brokers": [
                {
                    "broker": each.broker_name,
                    "cluster": each.cluster,
                    "addresses": {str(number): text for number, text in each.addresses.items()},
                }
                for each in view.route.brokers
            ],
        },
        "status": [as_object(QueueStatusRow.of(each)) for each in view.status],
        "messages": view.count,
        "groups": view.groups,
        **rates,
        "inToday": await console.sampler.today.stored(name, view.status),
    }


async def _configs(console: Console, name: str) -> dict[str, TopicConfig]:
    try:
        return await console.admin.topics.configs(name)
    except NoRoute:
        raise
    except PocketMQError:
        # One broker of several does not answer: the rest of the page is still worth having.
        return {}


async def consumers(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return each group of the topic: the owner, offset and lag of each queue (S87)."""
    name = call.path["topic"]
    groups: list[dict[str, Any]] = []
    for group in await console.admin.topics.groups(name):
        rows = await console.admin.groups.progress(group, name, owners=True, partial=True)
        groups.append(
            {
                "group": group,
                "lag": lag_of(rows),
                "queues": [as_object(QueueProgressRow.of(row)) for row in rows],
            }
        )
    return {"groups": groups}


# ------------------------------------------------------------ changes


async def put(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["topic"]
    fault = topic_fault(name)
    if fault is not None:
        raise bad_request(fault, "a name has letters, digits, %, |, - and _")
    await _refuse_system(console, name)
    admin = console.admin
    body = call.body
    cluster = body.text_or_none("cluster")
    chosen = body.texts("brokers")
    known = {each.name for each in await admin.site.masters(cluster)}
    if set(chosen) - known:
        raise not_found(f"no master is called {min(set(chosen) - known)!r}")
    try:
        before = await admin.topics.configs(name)
    except NoRoute:
        before = {}
    brokers = sorted(chosen or known)
    old = next((before[each] for each in brokers if each in before), TopicConfig(name, 8, 8))
    new = TopicConfig(
        name,
        body.number("readQueues", old.read_queues, low=1, high=65_535),
        body.number("writeQueues", old.write_queues, low=1, high=65_535),
        body.number("perm", old.perm, low=0, high=7),
        order=body.flag("order", old.order),
        attributes=body.table("attributes"),
    )
    parameters = {
        "topic": name,
        "brokers": brokers,
        "readQueues": new.read_queues,
        "writeQueues": new.write_queues,
        "perm": new.perm,
        "order": new.order,
        "attributes": dict(new.attributes),
    }
    if before:
        call.confirm(
            "topic.change",
            parameters,
            f"Topic {name!r} will have {new.read_queues} queues to read, {new.write_queues} to write "
            f"and the permission {new.perm} on {', '.join(brokers)}." + _fewer_queues(old, new),
            [
                {
                    "broker": each,
                    "from": as_object(TopicConfigRow.of(each, before[each]))
                    if each in before
                    else None,
                    "to": as_object(TopicConfigRow.of(each, new)),
                }
                for each in brokers
            ],
        )
    else:
        call.did("topic.create", parameters)
    for broker in brokers:
        await admin.topics.create(
            name,
            read_queues=new.read_queues,
            write_queues=new.write_queues,
            perm=new.perm,
            broker=broker,
            order=new.order,
            attributes=",".join(f"+{key}={value}" for key, value in new.attributes.items()) or None,
        )
    console.message_types = None
    return {"brokers": brokers, "created": not before}


def _fewer_queues(old: TopicConfig, new: TopicConfig) -> str:
    if new.read_queues < old.read_queues:
        return (
            f" Queues {new.read_queues} to {old.read_queues - 1} will not be read any more: their "
            "messages that are not consumed yet stay unread."
        )
    return ""


async def _refuse_system(console: Console, name: str) -> None:
    if kind_of_topic(name, None, await system_names(console)) == "SYSTEM":
        raise ApiError(
            403,
            "FORBIDDEN",
            f"topic {name!r} belongs to the system",
            "choose another one: brokers need this one as it is",
        )


async def delete(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["topic"]
    cluster = call.query.text_or_none("cluster")
    await _refuse_system(console, name)
    view = await topic_view(console.admin, name, partial=True)
    who = f"; groups {', '.join(view.groups)} consume it" if view.groups else ""
    where = f" in cluster {cluster!r}" if cluster else ""
    call.confirm(
        "topic.delete",
        {"topic": name, "messages": view.count, "groups": view.groups, "cluster": cluster},
        f"Topic {name!r} with {view.count} messages in {len(view.status)} queues will be deleted{where}"
        f"{who}. Its messages cannot be read any more, and its groups' offsets are forgotten.",
    )
    return {"brokers": await console.admin.topics.delete(name, cluster=cluster)}


async def send(console: Console, call: ApiRequest) -> dict[str, Any]:
    name = call.path["topic"]
    body = call.body
    data = body.data("body", body.text("bodyEncoding", "text"))
    if not data:
        raise bad_request("'body' is empty", "a message has a body of at least one byte")
    if len(data) > _BODY_SIZE_MAX:
        raise ApiError(413, "TOO_LARGE", f"a body has at most {_BODY_SIZE_MAX} bytes", None)
    properties = body.table("properties")
    for field, key in (("tag", "TAGS"), ("keys", "KEYS")):
        if field in body:
            properties[key] = body.text(field)
    for key, value in properties.items():
        if {"\x01", "\x02"} & {*key, *value}:
            raise bad_request(
                f"the property {key!r} contains a character that separates properties: remove it"
            )
    level = body.number("delayLevel", 0, high=1_000)
    if level:
        properties["DELAY"] = str(level)
    broker, queue_id = body.text_or_none("broker"), body.number_or_none("queueId")
    route = await console.admin.topics.route(name)
    queues = [
        each
        for each in route.publish_queues(name)
        if broker in (None, each.broker_name) and queue_id in (None, each.queue_id)
    ]
    if not queues:
        raise not_found(
            f"topic {name!r} has no such queue to write to", "see its route and its permission"
        )
    queue = console.choose(queues)
    call.did("message.send", {"topic": name, "broker": queue.broker_name, "size": len(data)})
    result = await console.admin.messages.send(queue, data, properties)
    return {
        "status": str(result.status),
        "msgId": result.msg_id,
        "offsetMsgId": result.offset_msg_id,
        "broker": result.message_queue.broker_name,
        "queueId": result.message_queue.queue_id,
        "queueOffset": result.queue_offset,
    }
