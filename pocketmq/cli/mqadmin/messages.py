"""mqadmin's commands about messages."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from pocketmq.admin import Admin
from pocketmq.cli.cluster import ClusterRefused
from pocketmq.cli.commands.message import find_message
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.answers import Answers, Table
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import Template, moment, second
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import TRACE_TOPIC
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client import SendResult
    from pocketmq.model.message import MessageExt


# A stored message in one line, like RocketMQ's MessageExt, and in fields.
_IN_WORDS = Template(
    "MessageExt [brokerName={broker_name}, queueId={queue_id}, storeSize={stored_size}, "
    "queueOffset={queue_offset}, sysFlag={sys_flag}, bornTimestamp={born_timestamp}, "
    "bornHost=/{born_host}, storeTimestamp={store_timestamp}, storeHost=/{store_host}, "
    "msgId={offset_msg_id}, commitLogOffset={commit_log_offset}, bodyCRC={body_crc}, "
    "reconsumeTimes={reconsume_times}, topic={topic}, flag={flag}"
)
_IN_FIELDS = tuple(
    Template(f"{label + ':':<20} {{{name}}}")
    for label, name in (
        ("Topic", "topic"),
        ("Tags", "tags:bracketed"),
        ("Keys", "keys:bracketed"),
        ("Queue ID", "queue_id"),
        ("Queue Offset", "queue_offset"),
        ("CommitLog Offset", "commit_log_offset"),
        ("Reconsume Times", "reconsume_times"),
        ("Born Timestamp", "born_timestamp:moment"),
        ("Store Timestamp", "store_timestamp:moment"),
        ("Born Host", "born_host"),
        ("Store Host", "store_host"),
        ("System Flag", "sys_flag"),
        ("Properties", "properties"),
    )
)


# ------------------------------------------------------------ sending


async def send_message(admin: Admin, given: GivenOptions) -> Answers:
    if "i" in given and "b" not in given:
        raise CannotBegin("-i names a queue of one broker: give -b BROKER too")
    topic = given["t"]
    queues = _chosen((await admin.topics.route(topic)).publish_queues(topic), given, "b", "i")
    queue = queues[time.time_ns() // 1_000_000 % len(queues)]
    properties = {"TAGS": given.get("c"), "KEYS": given.get("k")}
    found = {name: value for name, value in properties.items() if value}
    yield await admin.messages.send(queue, given["p"].encode("utf-8"), found)


def _chosen(
    queues: Iterable[MessageQueue], given: GivenOptions, broker: str, queue: str
) -> list[MessageQueue]:
    """Return the queues that the options of two letters name. Raises: CannotBegin without one."""
    found = [
        each
        for each in queues
        if given.get(broker, each.broker_name) == each.broker_name
        and (queue not in given or given.number(queue) == each.queue_id)
    ]
    if not found:
        topic = given["t"]
        raise CannotBegin(f"topic {topic!r} has no such queue: see mqadmin topicStatus -t {topic}")
    return found


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


async def send_msg_status(admin: Admin, given: GivenOptions) -> Answers:
    (master, *_) = await admin.site.masters(None, given["b"])
    # Each broker has a topic of its own name.
    queue = MessageQueue(master.name, master.name, 0)
    for _ in range(given.number("c", 50)):
        took, result = await timed_send(admin, queue, b"a" * given.number("s", 128))
        if isinstance(result, PocketMQError):
            raise result
        yield (
            f"rt={took:.0f}ms, SendResult=SendResult [sendStatus={result.status}, "
            f"msgId={result.msg_id}, offsetMsgId={result.offset_msg_id}, "
            f"queueOffset={result.queue_offset}]"
        )


async def check_msg_send_rt(admin: Admin, given: GivenOptions) -> Answers:
    topic, count = given["t"], given.number("a", 100)
    queues = (await admin.topics.route(topic)).publish_queues(topic)
    total = 0.0
    for number in range(count):
        queue = queues[number % len(queues)]
        took, result = await timed_send(admin, queue, b"a" * given.number("s", 128))
        # The first one connects.
        total += took if number else 0.0
        yield (
            queue.broker_name,
            queue.queue_id,
            not isinstance(result, PocketMQError),
            f"{took:.2f}",
        )
    yield f"Avg RT: {total / max(count - 1, 1):.2f}"


# ------------------------------------------------------------ printing what is stored


async def consume_message(admin: Admin, given: GivenOptions) -> Answers:
    if "o" in given and not ("b" in given and "i" in given):
        raise CannotBegin("-o is an offset in one queue: give -b BROKER and -i QUEUE too")
    left = given.number("c", 128)
    async for message in _stored(admin, given, broker="b", queue="i", begin="s", end="e"):
        if message.queue_offset >= given.number("o", 0):
            yield _line(message, body=True)
            left -= 1
            if not left:
                return


async def print_msg(admin: Admin, given: GivenOptions) -> Answers:
    async for message in _stored(admin, given, begin="b", end="e", expression="s"):
        yield _line(message, body=given.flag("d", True), charset=given.get("c", "utf-8"))


async def print_msg_by_queue(admin: Admin, given: GivenOptions) -> Answers:
    tags: Counter[str] = Counter()
    letters = {"broker": "a", "queue": "i", "begin": "b", "end": "e", "expression": "s"}
    async for message in _stored(admin, given, **letters):
        tags[message.tags or "DEFAULT"] += 1
        if given.flag("p"):
            yield _line(message, body=given.flag("d"), charset=given.get("c", "utf-8"))
    if given.flag("f"):
        for tag, count in tags.most_common():
            yield f"Tag: {tag:<30} Count: {count}"


async def _stored(
    admin: Admin,
    given: GivenOptions,
    *,
    begin: str,
    end: str,
    broker: str = "",
    queue: str = "",
    expression: str = "",
) -> AsyncIterator["MessageExt"]:
    """Yield messages of a topic, as chosen by the options of these letters."""
    topic = given["t"]
    queues = _chosen(
        (await admin.topics.route(topic)).subscribe_queues(topic), given, broker, queue
    )
    async for message in admin.messages.between(
        topic,
        begin_ms=given.time(begin) if begin in given else 0,
        end_ms=given.time(end) if end in given else None,
        queues=queues,
        expression=given.get(expression, "*"),
    ):
        yield message


def _line(message: "MessageExt", *, body: bool, charset: str = "utf-8") -> str:
    """Format a stored message. Raises: CannotBegin for an unknown character set."""
    try:
        text = message.body.decode(charset, "backslashreplace") if body else "NOT PRINT BODY"
    except LookupError:
        raise CannotBegin(f"{charset!r} is not a character set: leave -c out for UTF-8") from None
    properties = ", ".join(f"{name}={value}" for name, value in sorted(message.properties.items()))
    words = f"{_IN_WORDS.of(message)}, properties={{{properties}}}]"
    return f"MSGID: {message.msg_id} {words} BODY: {text}"


# ------------------------------------------------------------ finding one


async def query_msg_by_id(admin: Admin, given: GivenOptions) -> Answers:
    for msg_id in given["i"].split(","):
        message = await find_message(admin, msg_id.strip(), None)
        for line in await _shown(admin, message, given):
            yield line


async def query_msg_by_unique_key(admin: Admin, given: GivenOptions) -> Answers:
    found = await admin.messages.by_unique_key(given["t"], given["i"])
    if not found:
        raise ClusterRefused(f"topic {given['t']!r} has no message with the id {given['i']!r}")
    for message in found if "a" in given else found[-1:]:
        for line in await _shown(admin, message, given, with_offset_id=False):
            yield line


async def query_msg_by_offset(admin: Admin, given: GivenOptions) -> Answers:
    queue = MessageQueue(given["t"], given["b"], given.number("i"))
    see = f"see mqadmin topicStatus -t {queue.topic}"
    if queue not in (await admin.topics.route(queue.topic)).subscribe_queues(queue.topic):
        raise CannotBegin(f"there is no such queue: {see}")
    message = await admin.messages.at(queue, given.number("o"))
    if message is None:
        raise ClusterRefused(f"there is no message at offset {given['o']}: {see}")
    for line in await _shown(admin, message, given):
        yield line


async def _shown(
    admin: Admin, message: "MessageExt", given: GivenOptions, *, with_offset_id: bool = True
) -> list[str]:
    """Return a message and its track; with -g and -d hand it to a consumer instead."""
    if "g" in given and "d" in given:
        result = await admin.messages.consume_directly(message, given["g"], given["d"])
        return [
            f"ConsumeMessageDirectlyResult [consumeResult={result.result}, remark={result.remark}, "
            f"spentTimeMills={result.spent_ms}]"
        ]
    lines = [f"{'OffsetID:':<20} {message.offset_msg_id}"] if with_offset_id else []
    lines += [each.of(message) for each in _IN_FIELDS]
    # RocketMQ's writes the body into a file of /tmp and prints its path.
    lines += [f"{'Message Body:':<20} {message.body.decode('utf-8', 'backslashreplace')}", ""]
    tracks = await admin.messages.track(message)
    for each in tracks:
        detail = f", exceptionDesc={each.detail}" if each.detail else ""
        lines.append(f"MessageTrack [consumerGroup={each.group}, trackType={each.type}{detail}]")
    return lines if tracks else [*lines, "WARN: No Consumer"]


async def query_msg_trace_by_id(admin: Admin, given: GivenOptions) -> Answers:
    from pocketmq.client.tracing.trace import parse

    msg_id = given["i"]
    pubs: list[tuple[object, ...]] = []
    subs: dict[str, tuple[object, ...]] = {}
    for message in await admin.messages.by_key(given.get("t") or TRACE_TOPIC, msg_id):
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
    for number, rows in enumerate((pubs, subs.values())):
        yield Table(number)
        for row in rows:
            yield row


def _second(ms: str) -> str:
    return second(int(ms)) if ms.isdecimal() else "-"


async def query_cq(admin: Admin, given: GivenOptions) -> Answers:
    topic, index = given["t"], given.number("i")
    name = given.get("b") or (await admin.topics.route(topic)).queues[0].broker_name
    answer = await admin.site.api.requests.ask(
        dict(await admin.site.masters_of(topic)).get(name, name),
        RequestCode.QUERY_CONSUME_QUEUE,
        headers.QueryConsumeQueueHeader(
            topic, given.number("q"), index, given.number("c", 10), given.get("g")
        ),
        about=f"topic {topic!r}",
    )
    found = fastjson.loads(answer.body)
    for label, key in (("Subscription", "subscriptionData"), ("Filter", "filterData")):
        for line in (f"{label} data: ", str(found[key])) if found.get(key) else ():
            yield line
    yield "Queue data: "
    yield f"max: {found.get('maxQueueIndex')}, min: {found.get('minQueueIndex')}"
    yield "=" * 38
    for number, row in enumerate(found.get("queueData") or (), index):
        for line in (f"idx: {number}", "", str(dict(row)), "=" * 38):
            yield line


async def decode_message_id(admin: Admin, given: GivenOptions) -> Answers:
    from pocketmq.model.unique_key import parse

    parts = parse(given["i"], time.time_ns() // 1_000_000)
    yield f"ip={parts.ip}"
    yield f"date={moment(parts.near_ms)}"
