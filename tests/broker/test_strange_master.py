"""What a master says to its slave: whoever reaches a name server may claim to be one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.pairs import caught_up, pair
from tests.broker.serving import Peer
from tests.kit.waiting import until_async as until

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.metadata import Master
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode

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
        (CODE.GET_ALL_TOPIC_CONFIG, {"topicConfigTable": {"T": 1}}, "of the master cannot be read"),
        (PocketRequestCode.GET_REPLICA_TABLES, {"locks": {"x": 1}}, "the master's own tables"),
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
