"""mqadmin's commands about messages."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pocketmq.admin import Admin
from pocketmq.cli.cluster import ClusterRefused
from pocketmq.cli.commands.message import find_message
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import moment, parse_time, say, say_lines
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client import SendResult
    from pocketmq.model.message import MessageExt


# ------------------------------------------------------------ sending


async def send_message(admin: Admin, given: GivenOptions) -> None:
    properties = {"TAGS": given.text("c"), "KEYS": given.text("k")}
    found = {name: value for name, value in properties.items() if value}
    queue = await _queue_to_send(admin, given)
    result = await admin.messages.send(queue, given["p"].encode("utf-8"), found)
    given.show([(*result.message_queue[1:], result.status, result.msg_id)])


async def _queue_to_send(admin: Admin, given: GivenOptions) -> MessageQueue:
    """Return the queue of -b and -i, or one chosen by the clock."""
    topic = given["t"]
    if "i" in given and "b" not in given:
        raise CannotBegin("-i names a queue of one broker: give -b BROKER too")
    queues = (await admin.topics.route(topic)).publish_queues(topic)
    chosen = [
        each
        for each in queues
        if given.text("b", each.broker_name) == each.broker_name
        and ("i" not in given or given.number("i") == each.queue_id)
    ]
    if not chosen:
        raise CannotBegin(
            f"topic {topic!r} has no such queue to send to: see mqadmin topicStatus -t {topic}"
        )
    return chosen[time.time_ns() // 1_000_000 % len(chosen)]


async def timed_send(
    admin: Admin, queue: MessageQueue, body: bytes
) -> tuple[float, "SendResult | PocketMQError"]:
    """Send once; return how long it took, ms, and the result."""
    begin = time.perf_counter()
    result: SendResult | PocketMQError
    try:
        result = await admin.messages.send(queue, body)
    except PocketMQError as error:
        result = error
    return (time.perf_counter() - begin) * 1000, result


async def send_msg_status(admin: Admin, given: GivenOptions) -> None:
    (master, *_) = await admin.site.masters(None, given["b"])
    body = b"a" * given.number("s", 128)
    # Each broker has a topic of its own name.
    queue = MessageQueue(master.name, master.name, 0)
    for _ in range(given.number("c", 50)):
        took, result = await timed_send(admin, queue, body)
        if isinstance(result, PocketMQError):
            raise result
        say(
            f"rt={took:.0f}ms, SendResult=SendResult [sendStatus={result.status}, "
            f"msgId={result.msg_id}, offsetMsgId={result.offset_msg_id}, "
            f"queueOffset={result.queue_offset}]"
        )


async def check_msg_send_rt(admin: Admin, given: GivenOptions) -> None:
    topic, count = given["t"], given.number("a", 100)
    queues = (await admin.topics.route(topic)).publish_queues(topic)
    body = b"a" * given.number("s", 128)
    rows: list[tuple[object, ...]] = []
    total = 0.0
    for number in range(count):
        queue = queues[number % len(queues)]
        took, result = await timed_send(admin, queue, body)
        well = "false" if isinstance(result, PocketMQError) else "true"
        # The first one connects.
        total += took if number else 0.0
        rows.append((queue.broker_name, queue.queue_id, well, f"{took:.2f}"))
    given.show(rows)
    say(f"Avg RT: {total / max(count - 1, 1):.2f}")


# ------------------------------------------------------------ printing what is stored


async def consume_message(admin: Admin, given: GivenOptions) -> None:
    count = given.number("c", 128)
    if "o" in given and not ("b" in given and "i" in given):
        raise CannotBegin("-o is an offset in one queue: give -b BROKER and -i QUEUE too")
    shown = 0
    async for message in _stored(admin, given, broker="b", queue="i", begin="s", end="e"):
        if message.queue_offset < given.number("o", 0):
            continue
        _print_message(message, body=True)
        shown += 1
        if shown == count:
            return


async def print_msg(admin: Admin, given: GivenOptions) -> None:
    async for message in _stored(admin, given, begin="b", end="e", expression="s"):
        _print_message(message, body=given.flag("d", True), charset=given.text("c", "utf-8"))


async def print_msg_by_queue(admin: Admin, given: GivenOptions) -> None:
    tags: Counter[str] = Counter()
    async for message in _stored(
        admin, given, broker="a", queue="i", begin="b", end="e", expression="s"
    ):
        tags[message.tags or "DEFAULT"] += 1
        if given.flag("p", False):
            _print_message(message, body=given.flag("d", False), charset=given.text("c", "utf-8"))
    if given.flag("f", False):
        for tag, count in tags.most_common():
            say(f"Tag: {tag:<30} Count: {count}")


async def _stored(
    admin: Admin,
    given: GivenOptions,
    *,
    broker: str = "",
    queue: str = "",
    begin: str = "",
    end: str = "",
    expression: str = "",
) -> AsyncIterator["MessageExt"]:
    """Yield messages of a topic, as chosen by the options of these letters."""
    topic = given["t"]
    queues = [
        each
        for each in (await admin.topics.route(topic)).subscribe_queues(topic)
        if (broker not in given or given[broker] == each.broker_name)
        and (queue not in given or given.number(queue) == each.queue_id)
    ]
    if not queues:
        raise CannotBegin(f"topic {topic!r} has no such queue: see mqadmin topicStatus -t {topic}")
    now = time.time_ns() // 1_000_000
    async for message in admin.messages.between(
        topic,
        begin_ms=parse_time(given[begin], now) if begin in given else 0,
        end_ms=parse_time(given[end], now) if end in given else None,
        queues=queues,
        expression=given.text(expression, "*"),
    ):
        yield message


def _print_message(message: "MessageExt", *, body: bool, charset: str = "utf-8") -> None:
    try:
        text = message.body.decode(charset, "backslashreplace") if body else "NOT PRINT BODY"
    except LookupError:
        raise CannotBegin(f"{charset!r} is not a character set: leave -c out for UTF-8") from None
    say(f"MSGID: {message.msg_id} {_in_words(message)} BODY: {text}")


def _in_words(message: "MessageExt") -> str:
    """Format a stored message in one line, like RocketMQ's MessageExt."""
    properties = ", ".join(f"{name}={value}" for name, value in sorted(message.properties.items()))
    return (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, "
        f"storeSize={message.stored_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{message.born_host}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{message.store_host}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.commit_log_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, topic={message.topic}, flag={message.flag}, "
        f"properties={{{properties}}}]"
    )


# ------------------------------------------------------------ finding one


async def query_msg_by_id(admin: Admin, given: GivenOptions) -> None:
    for msg_id in given["i"].split(","):
        await _show(admin, await find_message(admin, msg_id.strip(), None), given, "OffsetID:")


async def query_msg_by_unique_key(admin: Admin, given: GivenOptions) -> None:
    found = await admin.messages.by_unique_key(given["t"], given["i"])
    if not found:
        raise ClusterRefused(f"topic {given['t']!r} has no message with the id {given['i']!r}")
    for message in found if "a" in given else found[-1:]:
        await _show(admin, message, given, "")


async def query_msg_by_offset(admin: Admin, given: GivenOptions) -> None:
    queue = MessageQueue(given["t"], given["b"], given.number("i"))
    known = (await admin.topics.route(queue.topic)).subscribe_queues(queue.topic)
    if queue not in known:
        raise CannotBegin(f"there is no such queue: see mqadmin topicStatus -t {queue.topic}")
    message = await admin.messages.at(queue, given.number("o"))
    if message is None:
        raise ClusterRefused(
            f"there is no message at offset {given['o']}: see mqadmin topicStatus -t {queue.topic}"
        )
    await _show(admin, message, given, "OffsetID:")


async def _show(admin: Admin, message: "MessageExt", given: GivenOptions, id_label: str) -> None:
    """Print a message and its track; with -g and -d hand it to a consumer instead."""
    if "g" in given and "d" in given:
        result = await admin.messages.consume_directly(message, given["g"], given["d"])
        say(
            f"ConsumeMessageDirectlyResult [consumeResult={result.result}, remark={result.remark}, "
            f"spentTimeMills={result.spent_ms}]"
        )
        return
    fields = {
        "Topic:": message.topic,
        "Tags:": f"[{message.tags or 'null'}]",
        "Keys:": f"[{message.keys or 'null'}]",
        "Queue ID:": message.queue_id,
        "Queue Offset:": message.queue_offset,
        "CommitLog Offset:": message.commit_log_offset,
        "Reconsume Times:": message.reconsume_times,
        "Born Timestamp:": moment(message.born_timestamp),
        "Store Timestamp:": moment(message.store_timestamp),
        "Born Host:": message.born_host,
        "Store Host:": message.store_host,
        "System Flag:": message.sys_flag,
        "Properties:": message.properties,
        # RocketMQ's writes the body into a file of /tmp and prints its path.
        "Message Body:": message.body.decode("utf-8", "backslashreplace"),
    }
    if id_label:
        say(f"{id_label:<20} {message.offset_msg_id}")
    for label, value in fields.items():
        say(f"{label:<20} {value}")
    say("")
    tracks = await admin.messages.track(message)
    if not tracks:
        say("WARN: No Consumer")
    for each in tracks:
        detail = f", exceptionDesc={each.detail}" if each.detail else ""
        say(f"MessageTrack [consumerGroup={each.group}, trackType={each.type}{detail}]")


async def query_msg_by_key(admin: Admin, given: GivenOptions) -> None:
    now = time.time_ns() // 1_000_000
    limits: dict[str, Any] = {
        name: parse_time(given[letter], now)
        for name, letter in (("begin_ms", "b"), ("end_ms", "e"))
        if letter in given
    }
    found = await admin.messages.by_key(
        given["t"], given["k"], count_max=given.number("m", 64), **limits
    )
    given.show((message.msg_id, message.queue_id, message.queue_offset) for message in found)


async def query_msg_trace_by_id(admin: Admin, given: GivenOptions) -> None:
    from pocketmq.client.tracing.trace import parse

    msg_id = given["i"]
    stored = await admin.messages.by_key(given.text("t", TRACE_TOPIC), msg_id)
    pubs: list[tuple[object, ...]] = []
    subs: dict[str, tuple[object, ...]] = {}
    for message in stored:
        host = message.born_host.rpartition(":")[0]
        for record in parse(message.body):
            if record[0] == "Pub" and msg_id in record[5].split(","):
                well = "success" if record[-1] == "true" else "failed"
                pubs.append(("Pub", record[3], host, _second(record[1]), f"{record[10]}ms", well))
            elif record[0] == "SubBefore" and record[5] == msg_id:
                subs[record[4]] = ("Sub", record[3], host, _second(record[1]), "-", "unknown")
            elif record[0] == "SubAfter" and record[2] == msg_id and record[1] in subs:
                well = "success" if record[4] == "true" else "failed"
                subs[record[1]] = (*subs[record[1]][:4], f"{record[3]}ms", well)
    if not pubs and not subs:
        raise ClusterRefused(
            f"no trace of {msg_id!r}: producers and consumers write traces only when tracing is switched on"
        )
    given.show(pubs)
    given.show(subs.values(), table=1)


def _second(ms: str) -> str:
    return moment(int(ms)).partition(",")[0] if ms.isdecimal() else "-"


async def query_cq(admin: Admin, given: GivenOptions) -> None:
    topic = given["t"]
    route = await admin.topics.route(topic)
    addresses = dict(await admin.site.masters_of(topic))
    name = given.text("b") or next(iter(each.broker_name for each in route.queues))
    address = addresses.get(name, name)
    answer = await admin.site.api.requests.ask(
        address,
        RequestCode.QUERY_CONSUME_QUEUE,
        headers.QueryConsumeQueueHeader(
            topic, given.number("q"), given.number("i"), given.number("c", 10), given.maybe("g")
        ),
        about=f"topic {topic!r}",
    )
    found = fastjson.loads(answer.body)
    for label, key in (("Subscription", "subscriptionData"), ("Filter", "filterData")):
        if found.get(key):
            say_lines(f"{label} data: ", str(found[key]))
    say_lines(
        "Queue data: ", f"max: {found.get('maxQueueIndex')}, min: {found.get('minQueueIndex')}"
    )
    say("=" * 38)
    for index, row in enumerate(found.get("queueData") or (), given.number("i")):
        say_lines(f"idx: {index}", "", str(dict(row)), "=" * 38)


async def decode_message_id(admin: Admin, given: GivenOptions) -> None:
    from pocketmq.model.unique_key import parse

    parts = parse(given.text("i"), time.time_ns() // 1_000_000)
    say(f"ip={parts.ip}")
    say(f"date={moment(parts.near_ms)}")
