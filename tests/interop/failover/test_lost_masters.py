"""A master that is frozen, cut from its controller, or has a tail that no other broker has: real processes.

RocketMQ 5.5.0 with all its safe settings loses 4 of 776, 377 of 2,218, and keeps two different logs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.remoting.codes import ResponseCode
from tests.cli.servers import Server
from tests.interop.conftest import or_missing
from tests.interop.failover.cut_proxy import Cutter, cutter
from tests.interop.failover.load import Direct, Load
from tests.interop.failover.sets import BrokerSet, Controller
from tests.interop.processes import free_ports
from tests.kit.nursery import Nursery
from tests.kit.waiting import until

QUICK = {
    "slaveTimeout": 500,
    "controllerHeartBeatTimeoutMills": 1_500,
    "brokerHeartbeatInterval": 200,
}


@contextmanager
def a_set(folder: Path, kinds: str, **settings: object) -> Iterator[tuple[BrokerSet, Cutter]]:
    """Brokers whose controller stands behind a proxy."""
    names = Server(folder, "namesrv", "--port", "0")
    namesrv = names.ready()["namesrv"]
    [port] = free_ports(1)
    with Nursery() as nursery, cutter(port) as proxy:
        controller = Controller(
            "pocket",
            folder / "controller",
            port=port,
            controllerAdvertisedAddress=proxy.address,
            controllerHeartBeatTimeoutMills=1_500,
        )
        brokers = or_missing(
            lambda: BrokerSet(
                folder,
                kinds.split(),
                controller,
                namesrv,
                nursery,
                **{**QUICK, "controllerAddr": proxy.address, **settings},
            )
        )
        try:
            controller.start()
            brokers.start()
            yield brokers, proxy
        finally:
            brokers.kill()
            controller.kill()
            names.kill()


def another_leads(brokers: BrokerSet, old: object) -> None:
    until(lambda: brokers.master() not in (None, old), "another broker is elected")


def check(brokers: BrokerSet, load: Load, direct: Direct) -> None:
    """Nothing that anyone was promised is lost, and the brokers are alike."""
    direct.close()
    brokers.in_sync()
    until(brokers.logs_are_equal, "the logs are equal")
    assert not set(load.acknowledged.values()) & set(direct.acknowledged.values())
    load.acknowledged |= direct.acknowledged
    assert not load.wrong()


def test_a_frozen_master_that_thaws_promises_nothing(tmp_path: Path) -> None:
    with a_set(tmp_path, "pocket pocket pocket") as (brokers, _):
        old = brokers.members[0]
        load = Load(brokers.namesrv)
        with load.running():
            load.more(50)
            direct = Direct(old.address, "direct")
            assert direct.send() == ResponseCode.SUCCESS
            old.process.freeze()
            for _ in range(50):
                direct.begin()
            another_leads(brokers, old)
            load.more(50)
            old.process.thaw()
            codes = direct.finish()
            assert ResponseCode.SUCCESS not in codes
            until(lambda: direct.send() == ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave")
        check(brokers, load, direct)


def test_a_master_cut_from_its_controller_promises_nothing(tmp_path: Path) -> None:
    with a_set(tmp_path, "pocket pocket pocket") as (brokers, proxy):
        old = brokers.members[0]
        load = Load(brokers.namesrv)
        with load.running():
            load.more(50)
            direct = Direct(old.address, "direct")
            proxy.cut_off(old.process.pid)
            while brokers.master() is old:
                assert direct.send() in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
            load.more(50)
            # Its clients still reach it.
            for _ in range(20):
                direct.begin()
            assert ResponseCode.SUCCESS not in direct.finish()
            proxy.let_in(old.process.pid)
            until(lambda: direct.send() == ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave")
        assert direct.acknowledged
        check(brokers, load, direct)


@pytest.mark.parametrize(
    "kinds",
    [
        "pocket pocket",
        pytest.param("java pocket", marks=pytest.mark.reference),
        pytest.param("pocket java", marks=pytest.mark.reference),
    ],
)
def test_of_two_elections_at_one_end_the_later_log_stays(kinds: str, tmp_path: Path) -> None:
    """Its tail was never promised; lists of epochs do not show it (RocketMQ keeps both logs)."""
    with a_set(tmp_path, kinds) as (brokers, _):
        first, second = brokers.members
        load = Load(brokers.namesrv)
        with load.running():
            load.more(50)
        brokers.elect(second)
        brokers.in_sync()
        until(brokers.logs_are_equal, "nothing is under way")
        # Without a controller the set cannot shrink: the dead broker may still be elected.
        brokers.controller.kill()
        first.kill()
        direct = Direct(second.address, "tail")
        for _ in range(30):
            direct.begin()
        codes = direct.finish()
        if second.kind == "pocketmq":
            assert set(codes) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        # What RocketMQ promises alone it loses: that is not judged here.
        direct.acknowledged.clear()
        second.kill()
        brokers.controller.start()
        first.launch()
        until(lambda: brokers.master() is first, "the other one leads")
        more = Load(brokers.namesrv)
        with more.running():
            more.more(50)
        second.launch()
        check(brokers, more, direct)
        assert not load.wrong()
