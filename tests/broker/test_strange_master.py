"""What a master says to its slave: any program that reaches a name server may claim to be one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.received_tables import MasterRefused
from pocketmq.broker.ha.table_sync import Master
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store.timer.check import TimerCheck
from tests.broker.pairs import caught_up, copied, pair
from tests.broker.popping import Popper
from tests.broker.serving import Peer
from tests.kit.waiting import until_async as until

CODE = RequestCode
SETTINGS = CODE.GET_BROKER_CONFIG


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.broker.ha.follower.RETRY_MS", 50)


def ends(low: object, high: object) -> dict[str, Any]:
    return {"table": {"commitLogMinOffset": low, "commitLogMaxOffset": high}}


def troubles(slave: Broker) -> str:
    """What health and status say."""
    side = slave.parts.messages.store.side_tasks.troubles
    said = [trouble.reason for name, trouble in side.items() if name == "metadata"]
    return slave.parts.services.replication.trouble + " ".join(said)


@pytest.mark.parametrize(
    ("code", "said", "trouble"),
    [
        (SETTINGS, {"mappedFileSizeCommitLog": "abc"}, "is no size: 'abc'"),
        (SETTINGS, {"mappedFileSizeCommitLog": "9" * 30}, "is no size"),
        (SETTINGS, {"mappedFileSizeCommitLog": "-5"}, "is no size: '-5'"),
        (CODE.GET_BROKER_RUNTIME_INFO, ends("x", "1"), "ends of the master's log"),
        (CODE.GET_BROKER_RUNTIME_INFO, ends(None, None), "ends of the master's log"),
        (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": 5}}, "offsets of the master"),
        (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": {"x": 1}}}, "offsets of the master"),
        (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": {"0": 1 << 63}}}, "more than 64 bi"),
        (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": [1]}, "offsets of the master"),
        (CODE.GET_ALL_DELAY_OFFSET, {"offsetTable": {"a": "b"}}, "delay offsets of the master"),
        (CODE.GET_ALL_DELAY_OFFSET, {"offsetTable": [3]}, "delay offsets of the master"),
        (CODE.GET_ALL_TOPIC_CONFIG, {"topicConfigTable": {"T": 1}}, "cannot read topicConfigTable"),
        (PocketRequestCode.GET_REPLICA_TABLES, {"locks": {"x": 1}}, "the master's own tables"),
        # It ended the slave.
        (CODE.GET_ALL_MESSAGE_REQUEST_MODE, {"messageRequestModeMap": 5}, "the request modes"),
        # Another question is asked instead.
        (CODE.GET_BROKER_HA_STATUS, {"masterCommitLogMaxOffset": "x"}, ""),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_no_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: Any, trouble: str
) -> None:
    """It says why it does not follow, serves what it has, and follows once the answer can be read."""
    json, settings = Master.json, Master.settings

    async def strange_json(master: Master, asked: RequestCode | PocketRequestCode) -> Any:
        return said if asked == code else await json(master, asked)

    async def strange_settings(master: Master) -> dict[str, str]:
        return said if code == SETTINGS else await settings(master)

    async with pair(tmp_path) as brokers, asyncio.timeout(60):
        master = await brokers.master()
        async with await Peer.at(master) as peer:
            assert (await peer.produce("T")).code == ResponseCode.SUCCESS
        with monkeypatch.context() as strange:
            strange.setattr(Master, "json", strange_json)
            strange.setattr(Master, "settings", strange_settings)
            slave = await brokers.slave()
            if trouble:
                await until(lambda: trouble in troubles(slave), "the slave says why")
            else:
                await caught_up(slave, master)
            async with await Peer.at(slave) as peer:
                asked = {"topic": "T", "queueId": 0}
                assert (await peer.ask(CODE.GET_MAX_OFFSET, asked)).code == ResponseCode.SUCCESS
        await caught_up(slave, master)
        assert not troubles(slave)


async def tables_of(slave: Broker) -> dict[str, Any]:
    """Return what a slave has taken over."""
    services, tables = slave.parts.services, slave.parts.tables
    metadata = services.replication.metadata
    assert metadata is not None
    copied = metadata.copied
    return {
        "topics": tables.topics.to_json()["topicConfigTable"],
        "groups": tables.groups.to_json()["subscriptionGroupTable"],
        "offsets": tables.offsets.to_json(),
        "delays": dict(copied.delay.offsets),
        "timers": copied.timer.check.read_ms,
        "isolated": copied.ours.isolated.to_json(),
        "orders": copied.ours.order_info.to_json(),
        "locks": [row[:5] for row in copied.ours.locks.to_json()],
        "deleted": copied.ours.store.deleted.rows(),
    }


def topic(**row: object) -> dict[str, Any]:
    rows = {"T": {"topicName": "T", **row}}
    return {"dataVersion": {"counter": 99}, "topicConfigTable": rows}


def group(**row: object) -> dict[str, Any]:
    rows = {"g": {"groupName": "g", **row}}
    return {"dataVersion": {"counter": 99}, "subscriptionGroupTable": rows}


OURS: Any = PocketRequestCode.GET_REPLICA_TABLES
LIES: list[tuple[int, Any]] = [
    (CODE.GET_ALL_TOPIC_CONFIG, topic(topicName="U")),
    (CODE.GET_ALL_TOPIC_CONFIG, topic(readQueueNums=1 << 40)),
    (CODE.GET_ALL_TOPIC_CONFIG, topic(writeQueueNums=10**9)),
    (CODE.GET_ALL_TOPIC_CONFIG, topic(perm=1 << 50)),
    (CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, group(groupName="other")),
    (CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, group(retryQueueNums=10**9)),
    (CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, group(retryMaxTimes=1 << 40)),
    (CODE.GET_ALL_CONSUMER_OFFSET, None),
    (CODE.GET_ALL_CONSUMER_OFFSET, []),
    (CODE.GET_ALL_CONSUMER_OFFSET, 5),
    (CODE.GET_ALL_CONSUMER_OFFSET, {}),
    (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": None}),
    (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": {"-1": 5}}}),
    (CODE.GET_ALL_CONSUMER_OFFSET, {"offsetTable": {"T@g": {str(1 << 40): 5}}}),
    (CODE.GET_ALL_DELAY_OFFSET, {"offsetTable": {str(1 << 40): 5}}),
    (CODE.GET_TIMER_CHECK_POINT, TimerCheck(read_ms=1 << 62)),
    (CODE.GET_TIMER_CHECK_POINT, TimerCheck(read_ms=-1)),
    (OURS, {"isolated": None}),
    (OURS, {"isolated": 5}),
    (OURS, {"isolated": []}),
    (OURS, {"isolated": {"groups": 5}}),
    (OURS, {"isolated": {"groups": {"i": 5}}}),
    (OURS, {"orderInfo": None}),
    (OURS, {"orderInfo": {"table": 5}}),
    (OURS, {"orderInfo": {"table": {"T@p": 5}}}),
    (OURS, {"orderInfo": {"table": {"T@p": {"0": {"o": []}}}}}),
    (OURS, {"locks": [1]}),
    (OURS, {"locks": [["g", "T", "b", 0, "c", "x"]]}),
    (OURS, {"deleted": [["T", 0, 1 << 62]]}),
    (OURS, {"deleted": [["T", 0, -1]]}),
]


async def test_what_cannot_be_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a promoted slave would begin its groups at their ends, or give out what a member holds."""
    ask, json = Master.ask, Master.json
    async with pair(tmp_path) as brokers, asyncio.timeout(60):
        master = await brokers.master()
        tables = master.parts.tables
        tables.topics.update(TopicConfig("T", 3, 3))
        tables.groups.update(GroupConfig("i", extra={"attributes": {"group.mode": "isolate"}}))
        async with await Peer.at(master) as peer:
            for _ in range(3):
                await peer.produce("T")
            await peer.heartbeat("i", {"T": "*"})
            popper = Popper(peer, master.clock.now_ms, group="p")
            assert await popper.pop(order=True, queueId=0, maxMsgNums=1)
            queue = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
            locked = {"consumerGroup": "l", "clientId": "c", "mqSet": [queue]}
            await peer.ask(CODE.LOCK_BATCH_MQ, {}, fastjson.dumps(locked))
            tables.offsets.offsets["T@g"] = {0: 3}
            slave = await brokers.slave()
            await caught_up(slave, master)
            await copied(slave)
            replication = slave.parts.services.replication
            metadata = replication.metadata
            assert metadata is not None
            _, copying = replication._following
            copying.cancel()
            await metadata.round()
            before = await tables_of(slave)
            assert before["locks"]
            assert before["orders"]["table"]
            assert before["isolated"]["groups"]
            for code, said in LIES:

                async def strange_json(
                    master: Master, asked: Any, code: int = code, said: Any = said
                ) -> Any:
                    if asked != code:
                        return await json(master, asked)
                    return {**await json(master, asked), **said} if code == OURS else said

                async def strange_ask(
                    master: Master, asked: Any, ext: Any = None, code: int = code, said: Any = said
                ) -> RemotingCommand:
                    answer = await ask(master, asked, ext)
                    if asked == code and isinstance(said, TimerCheck):
                        answer.body = said.pack()
                    return answer

                before["timers"] = metadata.copied.timer.check.read_ms
                with monkeypatch.context() as strange:
                    strange.setattr(Master, "json", strange_json)
                    strange.setattr(Master, "ask", strange_ask)
                    with pytest.raises(MasterRefused):
                        await metadata.round()
                after = await tables_of(slave)
                if code in (OURS, CODE.GET_ALL_DELAY_OFFSET):
                    # What was read before it is the master's, as it should be.
                    after["timers"] = before["timers"]
                assert after == before, (code, said)
                metadata._ahead = None
            await metadata.round()
