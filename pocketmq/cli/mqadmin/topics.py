"""mqadmin's commands about topics."""

import json
from typing import Any

from pocketmq.admin import Admin
from pocketmq.admin.views.topic import places_of
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.printed import moment, say, say_lines
from pocketmq.model.names import is_group_topic

_ORDER = "ORDER_TOPIC_CONFIG"
_PERMS = {6: "RW-", 4: "R--", 2: "-W-", 0: "---"}


async def update_topic(admin: Admin, given: GivenOptions) -> None:
    if given.flag("u", False) or given.flag("s", False):
        raise CannotBegin("PocketMQ has no unit topics (-u, -s): leave the option out")
    topic, perm, order = given["t"], given.number("p", 6), given.flag("o", False)
    reads, writes = given.number("r", 8), given.number("w", 8)
    masters = await admin.site.masters(given.maybe("c"), given.maybe("b"))
    for master in masters:
        await admin.topics.create(
            topic,
            read_queues=reads,
            write_queues=writes,
            perm=perm,
            broker=master.address,
            attributes=given.maybe("a"),
        )
        say(f"create topic to {master.address} success.")
    if order:
        conf = ";".join(f"{master.name}:{writes}" for master in masters)
        await admin.topics.create(
            topic,
            read_queues=reads,
            write_queues=writes,
            perm=perm,
            cluster=given.maybe("c"),
            broker=given.maybe("b"),
            order=True,
        )
        say(
            f"set {'broker' if 'b' in given else 'cluster'} orderConf. isOrder=true, orderConf=[{conf}]"
        )
    say(
        f"TopicConfig [topicName={topic}, readQueueNums={reads}, writeQueueNums={writes}, "
        f"perm={_PERMS.get(perm, perm)}, topicFilterType=SINGLE_TAG, topicSysFlag=0, "
        f"order={str(order).lower()}]"
    )


async def topic_list(admin: Admin, given: GivenOptions) -> None:
    if "c" not in given:
        for name in await admin.topics.names():
            say(name)
        return
    rows: list[tuple[object, ...]] = []
    for cluster in sorted({broker.cluster for broker in await admin.brokers()}):
        for topic in await admin.topics.names(cluster):
            if is_group_topic(topic):
                continue
            groups = await admin.topics.groups(topic) if await admin.topics.exists(topic) else []
            rows += [(cluster, topic, group) for group in groups or [""]]
    given.show(rows)


async def topic_route(admin: Admin, given: GivenOptions) -> None:
    route = await admin.topics.route(given["t"])
    if "l" not in given:
        found: dict[str, Any] = {
            "brokerDatas": [each.to_json() for each in route.brokers],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": each.broker_name,
                    "perm": each.perm,
                    "readQueueNums": each.read_queue_nums,
                    "writeQueueNums": each.write_queue_nums,
                }
                for each in route.queues
            ],
        }
        say_lines(*json.dumps(found, indent=1).split("\n"))
        return
    rows: list[tuple[object, ...]] = [
        (
            broker.cluster,
            broker.broker_name,
            "{" + ", ".join(f"{number}={at}" for number, at in broker.addresses.items()) + "}",
            queues.read_queue_nums,
            queues.write_queue_nums,
            queues.perm,
        )
        for broker, queues in places_of(route)
    ]
    reads = sum(each.read_queue_nums for each in route.queues)
    writes = sum(each.write_queue_nums for each in route.queues)
    rows += [("-" * 158,), ("Total:", len(route.queues), "", reads, writes, "")]
    given.show(rows)


async def topic_status(admin: Admin, given: GivenOptions) -> None:
    given.show(
        (*row.queue[1:], row.min_offset, row.max_offset, moment(row.last_update_ms))
        for row in await admin.topics.status(given["t"])
    )


async def topic_cluster_list(admin: Admin, given: GivenOptions) -> None:
    for cluster in sorted(
        {each.cluster for each in (await admin.topics.route(given["t"])).brokers}
    ):
        say(cluster)


async def update_topic_perm(admin: Admin, given: GivenOptions) -> None:
    topic, perm = given["t"], given.number("p")
    configs = await admin.topics.configs(topic)
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        old = configs.get(master.name)
        if old is None:
            raise CannotBegin(
                f"broker {master.name} does not have topic {topic!r}: see mqadmin topicRoute"
            )
        if old.perm == perm and "b" in given:
            say("new perm equals to the old one!")
            return
        await admin.topics.create(
            topic,
            read_queues=old.read_queues,
            write_queues=old.write_queues,
            perm=perm,
            broker=master.address,
        )
        say(f"update topic perm from {old.perm} to {perm} in {master.address} success.")


async def update_order_conf(admin: Admin, given: GivenOptions) -> None:
    topic, method = given["t"], given["m"]
    if method == "get":
        conf = await admin.settings.get_kv(_ORDER, topic)
        if conf is None:
            raise CannotBegin(
                f"topic {topic!r} has no order configuration: set one with -m put -v CONF"
            )
        say(f"get orderConf success. topic=[{topic}], orderConf=[{conf}]")
    elif method == "put":
        if not given.text("v"):
            raise CannotBegin("-m put needs -v 'broker:queues;broker:queues'")
        await admin.settings.put_kv(_ORDER, topic, given["v"])
        say(f"update orderConf success. topic=[{topic}], orderConf=[{given['v']}]")
    elif method == "delete":
        await admin.settings.delete_kv(_ORDER, topic)
        say(f"delete orderConf success. topic=[{topic}]")
    else:
        raise CannotBegin(f"-m is one of get, put, delete, not {method!r}")


async def allocate_mq(admin: Admin, given: GivenOptions) -> None:
    from pocketmq.client.consume.allocate import averagely

    members = given["i"].split(",")
    queues = sorted((await admin.topics.route(given["t"])).subscribe_queues(given["t"]))
    shares = {member: averagely(queues, members, member) for member in members}
    found = {
        member: [
            {"brokerName": each.broker_name, "queueId": each.queue_id, "topic": each.topic}
            for each in share
        ]
        for member, share in shares.items()
    }
    say(json.dumps({"result": found}, separators=(",", ":")))
