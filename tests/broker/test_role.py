"""What only a master does, and that a broker which follows is silent."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.role import MASTER_ONLY
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.store import StoreConfig
from tests.broker.serving import Peer, number, serving
from tests.kit.waiting import until_async

SERVICES = {"schedules", "lite", "delay", "timer", "pop", "transaction-check"}


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_role": "SLAVE"},
        {"broker_role": "SYNC_MASTER", "broker_id": 1},
        {"broker_id": 1},
    ],
)
def test_a_role_that_contradicts_its_number_ends_the_start(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    config = BrokerConfig(**settings)
    with pytest.raises(IllegalArgument, match=r"set brokerRole|set it to 1"):
        Broker(config, StoreConfig(store_path_root_dir=str(tmp_path)))
    with pytest.raises(IllegalArgument):
        read_broker_conf(config.to_properties())


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"enableDLegerCommitLog": "true"}, "brokerRole=SLAVE"),
        ({"enableControllerMode": "True", "brokerId": "-1"}, "needs controllerAddr"),
        ({"brokerConfigPaths": "/a.conf:/b.conf"}, "for each of these files"),
        ({"brokerId": "-1"}, "^brokerId must be at least 0, not -1$"),
    ],
)
def test_a_dledger_file_that_makes_several_masters_is_refused(
    settings: dict[str, str], advice: str
) -> None:
    """Three brokers of a DLedger group, started on the files of each, would take messages side by side."""
    with pytest.raises(IllegalArgument, match=advice):
        read_broker_conf(settings)
    read_broker_conf(dict.fromkeys(settings.keys() - {"brokerConfigPaths", "brokerId"}, "false"))


async def test_a_follower_refuses_what_only_a_master_does(tmp_path: Path) -> None:
    """S84."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        assert (await peer.produce("T")).code == ResponseCode.SUCCESS
        await broker.role.follow()
        for code, (refusal, remark) in MASTER_ONLY.items():
            answer = await peer.ask(code)
            assert (answer.code, answer.remark) == (refusal, remark), RequestCode(code).name
        assert (await peer.produce("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await peer.bodies("g", "T") == [b"hello"]
        broker.role.lead()
        assert number(await peer.produce("T"), "queueOffset") == 1


async def test_a_follower_is_silent(tmp_path: Path) -> None:
    """It delivers nothing, makes no topic and stores no offset; the master continues where it stopped."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.produce("T", b"now")
        await peer.produce("T", b"late", DELAY="1")
        await broker.role.follow()
        clock.advance_ms(2_000)
        await peer.heartbeat("g", {"T": "*"})
        await peer.pull("g", "T", 0, sys_flag=1, commitOffset=1)
        assert broker.parts.messages.store.max_offset("T", 0) == 1
        assert broker.parts.tables.topics.get("%RETRY%g") is None
        assert broker.parts.tables.offsets.query("g", "T", 0) == -1
        broker.role.lead()
        await until_async(lambda: broker.parts.messages.store.max_offset("T", 0) == 2)


async def test_the_services_of_a_master_are_those_of_the_role(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        assert {task.get_name() for task in broker.role.running} == SERVICES
        await broker.role.follow()
        assert not broker.role.running
