"""mqadmin's commands about brokers, name servers and their settings."""

import time
from typing import Any

from pocketmq.admin import Admin
from pocketmq.admin.views.broker import BrokerView, cluster_view
from pocketmq.admin.views.topic import topic_traffic
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.messages import timed_send
from pocketmq.cli.mqadmin.printed import moment, say, say_lines, second
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import is_group_topic
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import nearest


async def cluster_list(admin: Admin, given: GivenOptions) -> None:
    more = "m" in given
    rows: list[tuple[object, ...]] = []
    for each in await cluster_view(admin, given.maybe("c")):
        at = each.broker
        if each.failure is not None:
            rows.append((f"{at.cluster}  {at.name}  {at.address}  {each.failure}",))
        else:
            rows.append(_totals(each) if more else _rates(each))
    given.show(rows, table=int(more))


def _rates(view: BrokerView) -> tuple[object, ...]:
    broker, found, figures = view.broker, view.runtime, view.figures
    send, pull = (
        (
            found.get(f"{name}ThreadPoolQueueSize", "0"),
            found.get(f"{name}ThreadPoolQueueHeadWaitTimeMills", "0"),
        )
        for name in ("send", "pull")
    )
    earliest = int(found.get("earliestMessageTimeStamp", "0"))
    hours = (time.time() * 1000 - earliest) / 3_600_000 if earliest > 0 else 0.0
    return (
        broker.cluster,
        broker.name,
        broker.broker_id,
        broker.address,
        found.get("brokerVersionDesc", ""),
        f"{figures['in']:9.2f}({send[0]},{send[1]}ms)",
        f"{figures['out']:9.2f}({pull[0]},{pull[1]}ms)",
        found.get("pageCacheLockTimeMills", "0"),
        f"{hours:2.2f}",
        f"{float(found.get('commitLogDiskRatio') or 0):.4f}",
    )


def _totals(view: BrokerView) -> tuple[object, ...]:
    names = ("inYesterday", "outYesterday", "inToday", "outToday")
    return view.broker.cluster, view.broker.name, *(view.figures[name] for name in names)


async def cluster_rt(admin: Admin, given: GivenOptions) -> None:
    """Run one round; RocketMQ's runs for ever."""
    body = b"a" * given.number("s", 128)
    count = given.number("a", 100)
    rows: list[tuple[object, ...]] = []
    for master in await admin.site.masters(given.maybe("c")):
        # Each broker has a topic of its own name.
        queue = MessageQueue(master.name, master.name, 0)
        sent = [await timed_send(admin, queue, body) for _ in range(count)]
        failures = sum(isinstance(result, PocketMQError) for _, result in sent)
        mean = f"{sum(took for took, _ in sent) / count:.2f}"
        rows.append((master.cluster, master.name, mean, count - failures, failures))
    given.show(rows)


async def broker_status(admin: Admin, given: GivenOptions) -> None:
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        for name, value in sorted((await admin.settings.runtime(master.address)).items()):
            before = f"{master.address:<24} " if "c" in given else ""
            say(f"{before}{name:<32}: {value}")


async def ha_status(admin: Admin, given: GivenOptions) -> None:
    """Run one round; RocketMQ's runs for ever with -i."""
    if "b" in given:
        addresses = [given["b"]]
    else:
        addresses = [each.address for each in await admin.site.masters(given["c"])]
    for address in addresses:
        found = await admin.replicas.status(address)
        if not found["master"]:
            _say_follower(found["haClientRuntimeInfo"])
            continue
        slaves = found["haConnectionInfo"]
        say_lines("", f"#MasterAddr\t{address}")
        say(f"#MasterCommitLogMaxOffset\t{found['masterCommitLogMaxOffset']}")
        say_lines(f"#SlaveNum\t{len(slaves)}", f"#InSyncSlaveNum\t{found['inSyncSlaveNums']}")
        given.show(
            (
                slave["addr"],
                slave["slaveAckOffset"],
                slave["diff"],
                f"{slave['transferredByteInSecond'] / 1024:.2f}",
                "OK" if slave["inSync"] else "Fall Behind",
                slave["transferFromWhere"],
            )
            for slave in slaves
        )


def _say_follower(client: dict[str, Any]) -> None:
    say_lines(
        "", f"#MasterAddr\t{client['masterAddr']}", f"#CommitLogMaxOffset\t{client['maxOffset']}"
    )
    say(f"#TransferSpeed(KB/s)\t{client['transferredByteInSecond'] / 1024:.2f}")
    for head, name in (("Read", "lastReadTimestamp"), ("Write", "lastWriteTimestamp")):
        say(f"#Last{head}Time\t{moment(client.get(name, 0))}")
    say(f"#MasterFlushOffset\t{client.get('masterFlushOffset', 0)}")


async def broker_consume_stats(admin: Admin, given: GivenOptions) -> None:
    (master, *_) = await admin.site.masters(None, given["b"])
    answer = await admin.site.api.requests.ask(
        master.address,
        RequestCode.GET_BROKER_CONSUME_STATS,
        admin_headers.GetBrokerConsumeStatsHeader(given.flag("o", False)),
        timeout_ms=given.number("t", 50_000),
    )
    from pocketmq.model.queue_json import message_queue

    at_least = given.number("l", 0)
    found = fastjson.loads(answer.body)
    rows: list[tuple[object, ...]] = []
    for entry in found.get("consumeStatsList") or ():
        for group, stats in entry.items():
            for each in stats:
                for key, row in each["offsetTable"].items():
                    queue = message_queue(key)
                    lag = int(row["brokerOffset"]) - int(row["consumerOffset"])
                    # A queue of which nothing was consumed has no time, and is left out.
                    if lag >= at_least and int(row["lastTimestamp"]) > 0:
                        rows.append(
                            (
                                *(queue.topic, group, queue.broker_name, queue.queue_id),
                                *(row["brokerOffset"], row["consumerOffset"], lag),
                                second(int(row["lastTimestamp"])),
                            )
                        )
    given.show(rows)
    say_lines("", f"Diff Total: {found.get('totalDiff', 0)}")


async def stats_all(admin: Admin, given: GivenOptions) -> None:
    active = "a" in given
    rows: list[tuple[object, ...]] = []
    for topic in await admin.topics.names():
        if is_group_topic(topic) or given.text("t", topic) != topic:
            continue
        if not await admin.topics.exists(topic):
            continue
        traffic = await topic_traffic(admin, topic, await admin.topics.groups(topic))
        in_tps, in_day = f"{traffic.came.tps:.2f}", traffic.came.day or 0
        if not traffic.went and (in_day or not active):
            rows.append((topic, "", 0, in_tps, "", in_day, "NO_CONSUMER"))
        for group, went in traffic.went.items():
            if active and not in_day and not went.day:
                continue
            lag = sum(row.lag for row in await admin.groups.progress(group, topic))
            rows.append((topic, group, lag, in_tps, f"{went.tps:.2f}", in_day, went.day or 0))
    given.show(rows)


async def get_broker_config(admin: Admin, given: GivenOptions) -> None:
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        master_word = "Master: " if "c" in given else ""
        say(f"============{master_word}{master.address}============")
        for name, value in sorted((await admin.settings.broker(master.address)).items()):
            say(f"{name:<50}=  {value}")
        say("")


async def update_broker_config(admin: Admin, given: GivenOptions) -> None:
    name = given["k"]
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        known = await admin.settings.broker(master.address)
        if name not in known:
            raise CannotBegin(
                f"broker {master.name} has no setting {name!r}{nearest(name, known)}; see: mqadmin "
                f"getBrokerConfig -b {master.address}"
            )
        await admin.settings.update_broker(master.address, **{name: given["v"]})
        say(f"update broker config success, {master.address}")


async def get_namesrv_config(admin: Admin, given: GivenOptions) -> None:
    for address in admin.name_servers:
        say(f"============{address}============")
        for name, value in sorted((await admin.settings.name_server(address)).items()):
            say(f"{name:<50}=  {value}")


async def update_namesrv_config(admin: Admin, given: GivenOptions) -> None:
    for address in admin.name_servers:
        await admin.settings.update_name_server(address, **{given["k"]: given["v"]})
    servers = ", ".join(admin.name_servers)
    say_lines(f"update name server config success![{servers}]", f"{given['k']} : {given['v']}")


async def wipe_write_perm(admin: Admin, given: GivenOptions) -> None:
    await _set_writable(admin, given["b"], False)


async def add_write_perm(admin: Admin, given: GivenOptions) -> None:
    await _set_writable(admin, given["b"], True)


async def _set_writable(admin: Admin, broker: str, writable: bool) -> None:
    await admin.site.masters(None, broker)
    count = await admin.settings.set_writable(broker, writable)
    what = "add" if writable else "wipe"
    for address in admin.name_servers:
        say(f"{what} write perm of broker[{broker}] in name server[{address}] OK, {count}")


async def clean_expired_cq(admin: Admin, given: GivenOptions) -> None:
    await _ask_each(admin, given, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


async def clean_unused_topic(admin: Admin, given: GivenOptions) -> None:
    await _ask_each(admin, given, RequestCode.CLEAN_UNUSED_TOPIC)


async def delete_expired_commit_log(admin: Admin, given: GivenOptions) -> None:
    await _ask_each(admin, given, RequestCode.DELETE_EXPIRED_COMMITLOG)


async def _ask_each(admin: Admin, given: GivenOptions, code: RequestCode) -> None:
    for master in await admin.site.masters(given.maybe("c"), given.maybe("b")):
        await admin.site.api.requests.ask(master.address, code, timeout_ms=60_000)
    say("success")
