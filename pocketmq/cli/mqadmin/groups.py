"""mqadmin's commands about groups, their members and their offsets."""

import time

from pocketmq.admin import Admin, GroupConfig, Member
from pocketmq.admin.group_topics import delete_group_topics
from pocketmq.admin.views.group import group_row
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import describe
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import parse_time, say, say_lines, second
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode, version_name
from pocketmq.remoting.errors import PocketMQError

_MASTER = 0
_TYPES = {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}


async def update_sub_group(admin: Admin, given: GivenOptions) -> None:
    config = GroupConfig(
        given["g"],
        given.flag("s", True),
        given.flag("m", True),
        given.flag("d", True),
        given.number("q", 1),
        given.number("r", 16),
        given.number("i", _MASTER),
        given.number("w", 1),
        given.flag("a", True),
        # What 5.x adds: only brokers that are told keep it.
        {"consumeMessageOrderly": given.flag("o", False)} if "o" in given else {},
    )
    if "p" in given:
        config.extra["groupRetryPolicy"] = _retry_policy(given["p"])
    if "attributes" in given:
        changes = (each.partition("=") for each in given["attributes"].split(","))
        config.extra["attributes"] = {name: value for name, _, value in changes}
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        await admin.groups.create(config, broker=master.address)
        say(f"create subscription group to {master.address} success.")
    fields = ", ".join(f"{name}={_java(value)}" for name, value in config.to_json().items())
    say(f"SubscriptionGroupConfig{{{fields}}}")


def _retry_policy(text: str) -> object:
    """Parse the policy. Raises: CannotBegin."""
    try:
        policy = fastjson.loads(text)
    except ValueError as error:
        raise CannotBegin(f"-p takes a policy as JSON, not {text!r}: {error}") from None
    if not isinstance(policy, dict):
        raise CannotBegin(f"-p takes a policy as JSON, not {text!r}")
    return policy


def _java(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def delete_sub_group(admin: Admin, given: GivenOptions) -> None:
    group, forget = given["g"], given.flag("r", False)
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        await admin.site.api.requests.ask(
            master.address,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            admin_headers.DeleteSubscriptionGroupHeader(group, forget, forget),
            about=f"group {group!r}",
        )
        where = f"broker [{master.address}]" + (
            f" in cluster [{given['c']}]" if "c" in given else ""
        )
        say(f"delete subscription group [{group}] from {where} success.")
    if cluster := given.maybe("c"):
        for topic in await delete_group_topics(admin, group, cluster=cluster):
            say(f"delete topic [{topic}] from cluster [{cluster}] success.")
            say(f"delete topic [{topic}] from NameServer success.")


async def consumer_progress(admin: Admin, given: GivenOptions) -> None:
    if "g" not in given:
        await _all_progress(admin, given)
        return
    with_clients = given.flag("s", False)
    rows = await admin.groups.progress(given["g"], given.maybe("t"), owners=with_clients)
    given.show(
        (
            (
                *row.queue,
                row.broker_offset,
                row.consumer_offset,
                *(((row.owner or "N/A").partition("@")[0],) if with_clients else ()),
                row.lag,
                second(row.last_ms),
            )
            for row in rows
        ),
        table=int(with_clients),
    )
    say("")
    say(f"Consume TPS: {await _consume_tps(admin, given['g'], {r.queue.topic for r in rows}):.2f}")
    say(f"Diff Total: {sum(row.lag for row in rows)}")


async def _consume_tps(admin: Admin, group: str, topics: set[str]) -> float:
    masters = [each.address for each in await admin.site.masters()]
    counts = [
        await admin.settings.counted(masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        for topic in topics
    ]
    return sum(each.tps for each in counts)


async def _all_progress(admin: Admin, given: GivenOptions) -> None:
    rows: list[tuple[object, ...]] = []
    for group in await admin.groups.names():
        row = await group_row(admin, group)
        about = (0, "OFFLINE", "", "")
        if row.members and row.version is not None:
            kind = _TYPES.get(row.consume_type or "", "")
            about = (row.members, version_name(row.version), kind, row.message_model or "")
        tps = await _consume_tps(admin, group, set(row.topics))
        rows.append((group, *about, int(tps), row.lag or 0))
    rows.sort(key=lambda row: -int(str(row[-1])))
    given.show(rows, table=2)


async def consumer_status(admin: Admin, given: GivenOptions) -> None:
    group = given["g"]
    if given.text("i"):
        info = await admin.groups.running_info(group, given["i"], stack="s" in given)
        for name, value in sorted(info.properties.items()):
            say(f"{name:<40}: {value}")
        for queue, fields in sorted(info.queues.items()):
            say(f"{queue.topic}  {queue.broker_name}  {queue.queue_id}  {dict(fields)}")
        if info.stack:
            say_lines(*info.stack.split("\n"))
        return
    found = await describe(admin, group)
    given.show(
        (index, each["client"], each["version"], "; ".join(each["subscribes"]))
        for index, each in enumerate(found["members"], 1)
    )
    say("")
    if found["findings"]:
        say("WARN: Different subscription in the same group of consumer!!!")
        for finding in found["findings"]:
            say(finding["text"])
    else:
        say("Same subscription in the same group of consumer")


# RocketMQ has two names for it.
consumer = consumer_status


async def consumer_connection(admin: Admin, given: GivenOptions) -> None:
    found = await admin.groups.connection(given["g"])
    given.show(_member(each) for each in found.members)
    say_lines("", "Below is subscription:")
    rows = [(topic, each.sub_string) for topic, each in sorted(found.subscriptions.items())]
    given.show(rows, table=1)
    say_lines("", f"ConsumeType: {found.consume_type}")
    say(f"MessageModel: {found.message_model}")
    say(f"ConsumeFromWhere: {found.consume_from_where}")


def _member(member: Member) -> tuple[str, str, str, str]:
    return member.client_id, member.address, member.language, version_name(member.version)


async def get_consumer_config(admin: Admin, given: GivenOptions) -> None:
    clusters = {broker.name: broker.cluster for broker in await admin.brokers()}
    for name, groups in (await admin.groups.configs()).items():
        config = groups.get(given["g"])
        if config is None:
            continue
        line = "=" * 29
        say(f"{line}{clusters.get(name)}:{name}{line}")
        for field, value in config.to_json().items():
            say(f"{field:<40}=  {_java(value)}")


async def reset_offset_by_time(admin: Admin, given: GivenOptions) -> None:
    to = given["s"]
    at = parse_time(to, time.time_ns() // 1_000_000)
    force = given.flag("f", True)
    steps = await admin.groups.reset(given["g"], given["t"], at, force=force)
    say(
        f"rollback consumer offset by specified group[{given['g']}], topic[{given['t']}], "
        f"force[{_java(force)}], timestamp(string)[{to}], timestamp(long)[{at}]"
    )
    given.show((*step.queue[1:], step.new_offset) for step in steps)


async def reset_offset_by_time_old(admin: Admin, given: GivenOptions) -> None:
    at = parse_time(given["s"], time.time_ns() // 1_000_000)
    await _write_offsets(admin, given, at)


async def skip_accumulated_message(admin: Admin, given: GivenOptions) -> None:
    await _write_offsets(admin, given, -1)


async def _write_offsets(admin: Admin, given: GivenOptions, at: int) -> None:
    """Reset, and print what RocketMQ's older command prints."""
    group, topic = given["g"], given["t"]
    ends = {row.queue: row.max_offset for row in await admin.topics.status(topic)}
    steps = await admin.groups.reset(group, topic, at, force=given.flag("f", True))
    given.show(
        (
            *step.queue[1:],
            ends.get(step.queue, 0),
            step.old_offset,
            step.new_offset,
            step.new_offset,
        )
        for step in steps
    )


async def get_consumer_status(admin: Admin, given: GivenOptions) -> None:
    group, topic, only = given["g"], given["t"], given.text("i")
    say(f"get consumer status from client. group={group}, topic={topic}, originClientId={only}")
    rows: list[tuple[object, ...]] = []
    for member in (await admin.groups.connection(group)).members:
        if only not in ("", member.client_id):
            continue
        try:
            info = await admin.groups.running_info(group, member.client_id)
        except PocketMQError as error:
            rows.append((f"{member.client_id}: {error}",))
            continue
        rows += [
            (member.client_id, queue.broker_name, queue.queue_id, fields.get("commitOffset", -1))
            for queue, fields in sorted(info.queues.items())
            if queue.topic == topic
        ]
    given.show(rows)


async def set_consume_mode(admin: Admin, given: GivenOptions) -> None:
    topic, group, mode, shared = given["t"], given["g"], given["m"].upper(), given.number("q", 0)
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": shared}
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        await admin.site.api.requests.ask(
            master.address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=fastjson.dumps(body)
        )
        say(f"set consume mode to {master.address} success.")
    say(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared}]")


async def producer(admin: Admin, given: GivenOptions) -> None:
    await admin.site.masters(None, given["b"])
    found = await admin.groups.all_producers()
    if found is None:
        raise CannotBegin("this broker is older than the request: use mqadmin producerConnection")
    for group, members in found.items():
        if not members:
            say(f"producer group ({group}) instances are empty")
        for each in members:
            fields = ",".join(f"{name}={value}" for name, value in sorted(each.items()))
            say(f"producer group ({group}) instance : {fields}")


async def producer_connection(admin: Admin, given: GivenOptions) -> None:
    members = await admin.groups.producers(given["g"])
    if not members:
        raise CannotBegin(f"no producer is online in group {given['g']!r}: see mqadmin producer")
    for index, member in enumerate(members, 1):
        client, address, language, version = _member(member)
        say(f"{index:04d}  {client:<32} {address:<22} {language:<8} {version}")
