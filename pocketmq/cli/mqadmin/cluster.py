"""mqadmin's commands about brokers, name servers, their settings and accounts."""

import time
from collections.abc import Mapping
from typing import Any

from pocketmq.admin import Admin
from pocketmq.admin.views.broker import BrokerView, cluster_view
from pocketmq.admin.views.topic import topic_traffic
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.mqadmin.answers import Answers, Table
from pocketmq.cli.mqadmin.arguments import GivenOptions
from pocketmq.cli.mqadmin.messages import timed_send
from pocketmq.cli.mqadmin.printed import java, moment, second
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import is_group_topic
from pocketmq.model.queue_json import message_queue
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.settings import nearest

# What of an account is shown, in the order of RocketMQ's PlainAccessConfig: not the secret.
_SHOWN = (
    *("accessKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
    *("topicPerms", "groupPerms"),
)
_CONSUME_STATS_TIMEOUT_MS = 50_000


async def cluster_list(admin: Admin, given: GivenOptions) -> Answers:
    views = await cluster_view(admin, given.get("c"))
    yield Table(int("m" in given))
    for each in views:
        at = each.broker
        if each.failure is not None:
            yield f"{at.cluster}  {at.name}  {at.address}  {each.failure}"
        else:
            yield {"broker": at, **each.runtime, **each.figures, **_rates(each)}


def _rates(view: BrokerView) -> dict[str, str]:
    """Return what RocketMQ's prints of a broker's load."""
    found = view.runtime
    waits = {
        figure: f"({found.get(f'{pool}ThreadPoolQueueSize', '0')},"
        f"{found.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '0')}ms)"
        for figure, pool in (("in", "send"), ("delivered", "pull"))
    }
    # RocketMQ's are those of the last ten seconds, and of all topics.
    transferred = found.get("getTransferredTps") or found.get("getTransferedTps")
    rates = {"in": found.get("putTps"), "delivered": transferred}
    earliest = int(found.get("earliestMessageTimeStamp", "0"))
    return {
        **{
            f"{name}Load": f"{float((rates[name] or '0').split()[0]):9.2f}{wait}"
            for name, wait in waits.items()
        },
        "pageCacheLockTimeMills": found.get("pageCacheLockTimeMills", "0"),
        "hours": f"{(time.time() * 1000 - earliest) / 3_600_000 if earliest > 0 else 0.0:2.2f}",
        "space": f"{float(found.get('commitLogDiskRatio') or 0):.4f}",
    }


async def cluster_rt(admin: Admin, given: GivenOptions) -> Answers:
    """Run one round; RocketMQ's runs for ever."""
    body, count = b"a" * given.number("s", 128), given.number("a", 100)
    for master in await admin.site.masters(given.get("c")):
        # Each broker has a topic of its own name.
        queue = MessageQueue(master.name, master.name, 0)
        sent = [await timed_send(admin, queue, body) for _ in range(count)]
        failures = sum(isinstance(result, PocketMQError) for _, result in sent)
        mean = f"{sum(took for took, _ in sent) / count:.2f}"
        yield master.cluster, master.name, mean, count - failures, failures


async def ha_status(admin: Admin, given: GivenOptions) -> Answers:
    """Run one round; RocketMQ's runs for ever with -i."""
    addresses = [given["b"]] if "b" in given else await given.addresses(admin, "masters")
    for address in addresses:
        found = await admin.replicas.status(address)
        if not found["master"]:
            for line in _follower(found["haClientRuntimeInfo"]):
                yield line
            continue
        slaves = found["haConnectionInfo"]
        yield ""
        yield f"#MasterAddr\t{address}"
        yield f"#MasterCommitLogMaxOffset\t{found['masterCommitLogMaxOffset']}"
        yield f"#SlaveNum\t{len(slaves)}"
        yield f"#InSyncSlaveNum\t{found['inSyncSlaveNums']}"
        yield Table()
        for slave in slaves:
            yield {**slave, "status": "OK" if slave["inSync"] else "Fall Behind"}


def _follower(client: Mapping[str, Any]) -> list[str]:
    return [
        "",
        f"#MasterAddr\t{client['masterAddr']}",
        f"#CommitLogMaxOffset\t{client['maxOffset']}",
        f"#TransferSpeed(KB/s)\t{client['transferredByteInSecond'] / 1024:.2f}",
        f"#LastReadTime\t{moment(client.get('lastReadTimestamp', 0))}",
        f"#LastWriteTime\t{moment(client.get('lastWriteTimestamp', 0))}",
        f"#MasterFlushOffset\t{client.get('masterFlushOffset', 0)}",
    ]


async def broker_consume_stats(admin: Admin, given: GivenOptions) -> Answers:
    (master, *_) = await admin.site.masters(None, given["b"])
    answer = await admin.site.api.requests.ask(
        master.address,
        RequestCode.GET_BROKER_CONSUME_STATS,
        admin_headers.GetBrokerConsumeStatsHeader(given.flag("o")),
        timeout_ms=given.number("t", _CONSUME_STATS_TIMEOUT_MS),
    )
    found, at_least = fastjson.loads(answer.body), given.number("l", 0)
    groups = [each for entry in found.get("consumeStatsList") or () for each in entry.items()]
    yield Table()
    for group, stats in groups:
        for key, row in (each for table in stats for each in table["offsetTable"].items()):
            topic, broker, queue_id = message_queue(key)
            end, offset, last_ms = row["brokerOffset"], row["consumerOffset"], row["lastTimestamp"]
            lag = int(end) - int(offset)
            # A queue of which nothing was consumed has no time, and is left out.
            if lag >= at_least and int(last_ms) > 0:
                yield topic, group, broker, queue_id, end, offset, lag, int(last_ms)
    yield ""
    yield f"Diff Total: {found.get('totalDiff', 0)}"


async def stats_all(admin: Admin, given: GivenOptions) -> Answers:
    active = "a" in given
    for topic in await admin.topics.names():
        if is_group_topic(topic) or given.get("t", topic) != topic:
            continue
        if not await admin.topics.exists(topic):
            continue
        traffic = await topic_traffic(admin, topic, await admin.topics.groups(topic))
        in_tps, in_day = f"{traffic.came.tps:.2f}", traffic.came.day or 0
        if not traffic.went and (in_day or not active):
            yield topic, "", 0, in_tps, "", in_day, "NO_CONSUMER"
        for group, went in traffic.went.items():
            if not active or in_day or went.day:
                lag = sum(row.lag for row in await admin.groups.progress(group, topic))
                yield topic, group, lag, in_tps, f"{went.tps:.2f}", in_day, went.day or 0


async def update_broker_config(admin: Admin, given: GivenOptions) -> Answers:
    name = given["k"]
    for master in await given.masters(admin):
        known = await admin.settings.broker(master.address)
        if name not in known:
            raise CannotBegin(
                f"broker {master.name} has no setting {name!r}{nearest(name, known)}; see: mqadmin "
                f"getBrokerConfig -b {master.address}"
            )
        await admin.settings.update_broker(master.address, **{name: given["v"]})
        yield f"update broker config success, {master.address}"


async def update_namesrv_config(admin: Admin, given: GivenOptions) -> Answers:
    for address in admin.name_servers:
        await admin.settings.update_name_server(address, **{given["k"]: given["v"]})
    yield f"update name server config success![{', '.join(admin.name_servers)}]"
    yield f"{given['k']} : {given['v']}"


async def wipe_write_perm(admin: Admin, given: GivenOptions, *, writable: bool = False) -> Answers:
    await admin.site.masters(None, given["b"])
    count = await admin.settings.set_writable(given["b"], writable)
    for address in admin.name_servers:
        at = f"broker[{given['b']}] in name server[{address}]"
        yield f"{'add' if writable else 'wipe'} write perm of {at} OK, {count}"


def add_write_perm(admin: Admin, given: GivenOptions) -> Answers:
    return wipe_write_perm(admin, given, writable=True)


async def get_acl_config(admin: Admin, given: GivenOptions) -> Answers:
    for master in await given.masters(admin):
        told = await admin.settings.accounts(master.address)
        addresses = ", ".join(map(str, told.get("globalWhiteAddrs") or ()))
        for line in ("", f"globalWhiteRemoteAddresses: [{addresses}]", "", "accounts:"):
            yield line
        for account in told.get("plainAccessConfigs") or ():
            for name in _SHOWN:
                yield f"  {name:<18}: {java(account.get(name))}"
            yield ""


async def cluster_acl_config_version(admin: Admin, given: GivenOptions) -> Answers:
    for master in await given.masters(admin):
        place = (master.cluster, master.name, master.address)
        for path, version in (await admin.settings.account_files(master.address)).items():
            yield *place, path, version["counter"], second(version["timestamp"])
