"""mqadmin's commands about groups, their members and their offsets."""

from pocketmq.admin import Admin, GroupConfig
from pocketmq.admin.group_topics import delete_group_topics
from pocketmq.admin.views.group import group_row
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.group_report import describe
from pocketmq.cli.mqadmin.answers import Answers, Table
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import java
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, version_name
from pocketmq.remoting.errors import PocketMQError

_MASTER = 0
_TYPES = {"CONSUME_ACTIVELY": "PULL", "CONSUME_PASSIVELY": "PUSH"}


async def update_sub_group(admin: Admin, given: GivenOptions) -> Answers:
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
    )
    # 5.x adds these: a broker keeps them only if they are given.
    if "o" in given:
        config.extra["consumeMessageOrderly"] = given.flag("o")
    if "p" in given:
        config.extra["groupRetryPolicy"] = _retry_policy(given["p"])
    if "attributes" in given:
        changes = (each.partition("=") for each in given["attributes"].split(","))
        config.extra["attributes"] = {name: value for name, _, value in changes}
    for master in await given.masters(admin):
        await admin.groups.create(config, broker=master.address)
        yield f"create subscription group to {master.address} success."
    fields = ", ".join(f"{name}={java(value)}" for name, value in config.to_json().items())
    yield f"SubscriptionGroupConfig{{{fields}}}"


def _retry_policy(text: str) -> object:
    """Parse the policy. Raises: CannotBegin."""
    policy, why = None, ""
    try:
        policy = fastjson.loads(text)
    except ValueError as error:
        why = f": {error}"
    if not isinstance(policy, dict):
        raise CannotBegin(f"-p takes a policy as JSON, not {text!r}{why}")
    return policy


async def delete_sub_group(admin: Admin, given: GivenOptions) -> Answers:
    group, cluster = given["g"], given.get("c")
    where = f" in cluster [{cluster}]" if cluster else ""
    for master in await given.masters(admin):
        at = master.address
        await admin.groups.delete(group, with_offsets=given.flag("r"), broker=at)
        yield f"delete subscription group [{group}] from broker [{at}]{where} success."
    for topic in await delete_group_topics(admin, group, cluster=cluster) if cluster else ():
        yield f"delete topic [{topic}] from cluster [{cluster}] success."
        yield f"delete topic [{topic}] from NameServer success."


async def consumer_progress(admin: Admin, given: GivenOptions) -> Answers:
    if "g" not in given:
        yield Table(2)
        rows = [await _summary(admin, group) for group in await admin.groups.names()]
        for row in sorted(rows, key=lambda row: -int(str(row[-1]))):
            yield row
        return
    owners = given.flag("s")
    progress = await admin.groups.progress(given["g"], given.get("t"), owners=owners)
    yield Table(int(owners))
    for each in progress:
        yield each
    yield ""
    tps = await _consume_tps(admin, given["g"], {each.queue.topic for each in progress})
    yield f"Consume TPS: {tps:.2f}"
    yield f"Diff Total: {sum(each.lag for each in progress)}"


async def _summary(admin: Admin, group: str) -> tuple[object, ...]:
    """Return a group in one row."""
    row = await group_row(admin, group)
    about = (0, "OFFLINE", "", "")
    if row.members and row.version is not None:
        kind = _TYPES.get(row.consume_type or "", "")
        about = (row.members, version_name(row.version), kind, row.message_model or "")
    return group, *about, int(await _consume_tps(admin, group, set(row.topics))), row.lag or 0


async def _consume_tps(admin: Admin, group: str, topics: set[str]) -> float:
    masters = [each.address for each in await admin.site.masters()]
    counts = [
        await admin.settings.counted(masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        for topic in topics
    ]
    return sum(each.tps for each in counts)


async def consumer_status(admin: Admin, given: GivenOptions) -> Answers:
    group = given["g"]
    if given.get("i"):
        info = await admin.groups.running_info(group, given["i"], stack="s" in given)
        for name, value in sorted(info.properties.items()):
            yield f"{name:<40}: {value}"
        for queue, fields in sorted(info.queues.items()):
            yield f"{queue.topic}  {queue.broker_name}  {queue.queue_id}  {dict(fields)}"
        for line in (info.stack or "").split("\n") if info.stack else ():
            yield line
        return
    found = await describe(admin, group)
    yield Table()
    for index, each in enumerate(found["members"], 1):
        yield index, each["clientId"], each["version"], "; ".join(each["subscribes"])
    yield ""
    if not found["findings"]:
        yield "Same subscription in the same group of consumer"
        return
    yield "WARN: Different subscription in the same group of consumer!!!"
    for finding in found["findings"]:
        yield finding["text"]


# RocketMQ has two names for it.
consumer = consumer_status


async def consumer_connection(admin: Admin, given: GivenOptions) -> Answers:
    found = await admin.groups.connection(given["g"])
    yield Table(0)
    for member in found.members:
        yield member
    for line in ("", "Below is subscription:"):
        yield line
    yield Table(1)
    for topic, each in sorted(found.subscriptions.items()):
        yield topic, each.sub_string
    yield ""
    yield f"ConsumeType: {found.consume_type}"
    yield f"MessageModel: {found.message_model}"
    yield f"ConsumeFromWhere: {found.consume_from_where}"


async def get_consumer_config(admin: Admin, given: GivenOptions) -> Answers:
    clusters = {broker.name: broker.cluster for broker in await admin.brokers()}
    for name, groups in (await admin.groups.configs()).items():
        if given["g"] in groups:
            line = "=" * 29
            yield f"{line}{clusters.get(name)}:{name}{line}"
            for field, value in groups[given["g"]].to_json().items():
                yield f"{field:<40}=  {java(value)}"


async def reset_offset_by_time(admin: Admin, given: GivenOptions) -> Answers:
    at, force = given.time("s"), given.flag("f", True)
    steps = await admin.groups.reset(given["g"], given["t"], at, force=force)
    yield (
        f"rollback consumer offset by specified group[{given['g']}], topic[{given['t']}], "
        f"force[{java(force)}], timestamp(string)[{given['s']}], timestamp(long)[{at}]"
    )
    yield Table()
    for step in steps:
        yield step


async def reset_offset_by_time_old(admin: Admin, given: GivenOptions) -> Answers:
    """Also answers skipAccumulatedMessage: without a time, to the end."""
    group, topic = given["g"], given["t"]
    at = given.time("s") if "s" in given else -1
    ends = {row.queue: row.max_offset for row in await admin.topics.status(topic)}
    for step in await admin.groups.reset(group, topic, at, force=given.flag("f", True)):
        offsets = (step.old_offset, step.new_offset, step.new_offset)
        yield *step.queue[1:], ends.get(step.queue, 0), *offsets


skip_accumulated_message = reset_offset_by_time_old


async def get_consumer_status(admin: Admin, given: GivenOptions) -> Answers:
    group, topic, only = given["g"], given["t"], given.get("i") or ""
    yield f"get consumer status from client. group={group}, topic={topic}, originClientId={only}"
    members = (await admin.groups.connection(group)).members
    yield Table()
    for client in (each.client_id for each in members if only in ("", each.client_id)):
        try:
            info = await admin.groups.running_info(group, client)
        except PocketMQError as error:
            yield f"{client}: {error}"
            continue
        for queue, fields in sorted(info.queues.items()):
            if queue.topic == topic:
                yield client, queue.broker_name, queue.queue_id, fields.get("commitOffset", -1)


async def set_consume_mode(admin: Admin, given: GivenOptions) -> Answers:
    topic, group, mode, shared = given["t"], given["g"], given["m"].upper(), given.number("q", 0)
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": shared}
    code, asked = RequestCode.SET_MESSAGE_REQUEST_MODE, fastjson.dumps(body)
    for address in await given.addresses(admin, "masters"):
        await admin.site.api.requests.ask(address, code, body=asked)
        yield f"set consume mode to {address} success."
    yield f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared}]"


async def producer(admin: Admin, given: GivenOptions) -> Answers:
    await given.masters(admin)
    found = await admin.groups.all_producers()
    if found is None:
        raise CannotBegin("this broker is older than the request: use mqadmin producerConnection")
    for group, members in found.items():
        if not members:
            yield f"producer group ({group}) instances are empty"
        for each in members:
            fields = ",".join(f"{name}={value}" for name, value in sorted(each.items()))
            yield f"producer group ({group}) instance : {fields}"


async def producer_connection(admin: Admin, given: GivenOptions) -> Answers:
    members = await admin.groups.producers(given["g"])
    if not members:
        raise CannotBegin(f"no producer is online in group {given['g']!r}: see mqadmin producer")
    for index, each in enumerate(members, 1):
        about = f"{each.client_id:<32} {each.address:<22} {each.language:<8}"
        yield f"{index:04d}  {about} {version_name(each.version)}"
