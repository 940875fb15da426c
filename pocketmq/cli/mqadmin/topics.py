"""mqadmin's commands about topics."""

import json

from pocketmq.admin import Admin
from pocketmq.admin.topics import ORDER_NAMESPACE
from pocketmq.admin.views.topic import places_of
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.answers import Answers, Table
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import java
from pocketmq.model.names import is_group_topic

_PERMS = {6: "RW-", 4: "R--", 2: "-W-", 0: "---"}


async def update_topic(admin: Admin, given: GivenOptions) -> Answers:
    if given.flag("u") or given.flag("s"):
        raise CannotBegin("PocketMQ has no unit topics (-u, -s): leave the option out")
    topic, perm, order = given["t"], given.number("p", 6), given.flag("o")
    reads, writes = given.number("r", 8), given.number("w", 8)
    masters = await given.masters(admin)
    await admin.topics.create(
        topic,
        read_queues=reads,
        write_queues=writes,
        perm=perm,
        cluster=given.get("c"),
        broker=given.get("b"),
        order=order,
        attributes=given.get("a"),
    )
    for master in masters:
        yield f"create topic to {master.address} success."
    if order:
        conf = ";".join(f"{master.name}:{writes}" for master in masters)
        place = "broker" if "b" in given else "cluster"
        yield f"set {place} orderConf. isOrder=true, orderConf=[{conf}]"
    yield (
        f"TopicConfig [topicName={topic}, readQueueNums={reads}, writeQueueNums={writes}, "
        f"perm={_PERMS.get(perm, perm)}, topicFilterType=SINGLE_TAG, topicSysFlag=0, "
        f"order={java(order)}]"
    )


async def topic_list(admin: Admin, given: GivenOptions) -> Answers:
    if "c" not in given:
        for name in await admin.topics.names():
            yield name
        return
    yield Table()
    for cluster in sorted({broker.cluster for broker in await admin.brokers()}):
        for topic in await admin.topics.names(cluster):
            if is_group_topic(topic):
                continue
            groups = await admin.topics.groups(topic) if await admin.topics.exists(topic) else []
            for group in groups or [""]:
                yield cluster, topic, group


async def topic_route(admin: Admin, given: GivenOptions) -> Answers:
    route = await admin.topics.route(given["t"])
    if "l" not in given:
        brokers = [each.to_json() for each in route.brokers]
        queues = [each.to_json() for each in route.queues]
        found = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
        for line in json.dumps(found, indent=1).split("\n"):
            yield line
        return
    for broker, queues_of in places_of(route):
        addresses = ", ".join(f"{number}={at}" for number, at in broker.addresses.items())
        counts = (queues_of.read_queue_nums, queues_of.write_queue_nums, queues_of.perm)
        yield broker.cluster, broker.broker_name, f"{{{addresses}}}", *counts
    reads = sum(each.read_queue_nums for each in route.queues)
    writes = sum(each.write_queue_nums for each in route.queues)
    yield "-" * 158
    yield "Total:", len(route.queues), "", reads, writes, ""


async def topic_cluster_list(admin: Admin, given: GivenOptions) -> Answers:
    route = await admin.topics.route(given["t"])
    for cluster in sorted({each.cluster for each in route.brokers}):
        yield cluster


async def update_topic_perm(admin: Admin, given: GivenOptions) -> Answers:
    topic, perm = given["t"], given.number("p")
    configs = await admin.topics.configs(topic)
    for master in await given.masters(admin):
        old = configs.get(master.name)
        if old is None:
            raise CannotBegin(
                f"broker {master.name} does not have topic {topic!r}: see mqadmin topicRoute"
            )
        if old.perm == perm and "b" in given:
            yield "new perm equals to the old one!"
            return
        await admin.topics.create(
            topic,
            read_queues=old.read_queues,
            write_queues=old.write_queues,
            perm=perm,
            broker=master.address,
        )
        yield f"update topic perm from {old.perm} to {perm} in {master.address} success."


async def update_order_conf(admin: Admin, given: GivenOptions) -> Answers:
    topic, method, conf = given["t"], given["m"], given.get("v")
    if method not in ("get", "put", "delete"):
        raise CannotBegin(f"-m is one of get, put, delete, not {method!r}")
    if method == "delete":
        await admin.settings.delete_kv(ORDER_NAMESPACE, topic)
        yield f"delete orderConf success. topic=[{topic}]"
        return
    if method == "get":
        conf = await admin.settings.get_kv(ORDER_NAMESPACE, topic)
        if conf is None:
            raise CannotBegin(
                f"topic {topic!r} has no order configuration: set one with -m put -v CONF"
            )
    elif not conf:
        raise CannotBegin("-m put needs -v 'broker:queues;broker:queues'")
    else:
        await admin.settings.put_kv(ORDER_NAMESPACE, topic, conf)
    word = {"put": "update"}.get(method, method)
    yield f"{word} orderConf success. topic=[{topic}], orderConf=[{conf}]"


async def allocate_mq(admin: Admin, given: GivenOptions) -> Answers:
    from pocketmq.client.consume.allocate import averagely

    members = given["i"].split(",")
    queues = sorted((await admin.topics.route(given["t"])).subscribe_queues(given["t"]))
    found = {
        member: [
            {"brokerName": each.broker_name, "queueId": each.queue_id, "topic": each.topic}
            for each in averagely(queues, members, member)
        ]
        for member in members
    }
    yield json.dumps({"result": found}, separators=(",", ":"))
