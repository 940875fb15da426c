"""Scenarios: a master that is frozen, cut from its controller, or has a tail that no other broker has.

RocketMQ 5.5.0 with all its safe settings loses 4 of 776, 377 of 2,218, and keeps two different logs.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketmq.remoting.codes import ResponseCode
from tests.cli.servers import Server
from tests.interop.conftest import or_missing
from tests.interop.failover.cut_proxy import Cutter, cutter
from tests.interop.failover.load import Direct, Load, wrong_of
from tests.interop.failover.sets import BrokerSet, Controller
from tests.kit.nursery import Nursery
from tests.kit.ports import free_ports
from tests.kit.waiting import until

QUICK = {
    "slaveTimeout": 500,
    "controllerHeartBeatTimeoutMills": 1_500,
    "brokerHeartbeatInterval": 200,
}


@contextmanager
def a_set(folder: Path, kinds: str, **settings: Any) -> Iterator[tuple[BrokerSet, Cutter]]:
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
                nursery=nursery,
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


@dataclass
class Judged:
    """How many sends were acknowledged, and what is wrong with them; the last codes of the old master."""

    acknowledged: int
    wrong: list[str]
    late_codes: list[int]


def _judged(brokers: BrokerSet, loads: Sequence[Load | Direct], late_codes: list[int]) -> Judged:
    brokers.in_sync()
    until(brokers.logs_are_equal, "the logs are equal")
    promised = [each.acknowledged for each in loads]
    wrong = wrong_of(brokers.namesrv, promised)
    return Judged(sum(map(len, promised)), wrong, late_codes)


def frozen(folder: Path) -> Judged:
    """SIGSTOP of the master under load, SIGCONT once another leads."""
    with a_set(folder, "pocket pocket pocket") as (brokers, _):
        old = brokers.members[0]
        load = Load(brokers.namesrv)
        with load.running(), closing(Direct(old.address, "direct")) as direct:
            load.more(50)
            assert direct.send() == ResponseCode.SUCCESS
            old.process.freeze()
            for _ in range(50):
                direct.begin()
            another_leads(brokers, old)
            load.more(50)
            old.process.thaw()
            codes = direct.finish()
            until(lambda: direct.send() == ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave")
        return _judged(brokers, (load, direct), codes)


def cut_off(folder: Path) -> Judged:
    """The master loses its controller, and not its clients."""
    with a_set(folder, "pocket pocket pocket") as (brokers, proxy):
        old = brokers.members[0]
        load = Load(brokers.namesrv)
        with load.running(), closing(Direct(old.address, "direct")) as direct:
            load.more(50)
            proxy.cut_off(old.process.pid)

            def another_leads_while_it_sends() -> bool:
                code = direct.send()
                if code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT):
                    raise RuntimeError(f"the old master answers {code}")
                return brokers.master() is not old

            until(another_leads_while_it_sends, "another broker is elected")
            load.more(50)
            for _ in range(20):
                direct.begin()
            codes = direct.finish()
            proxy.let_in(old.process.pid)
            until(lambda: direct.send() == ResponseCode.SERVICE_NOT_AVAILABLE, "it is a slave")
        assert direct.acknowledged
        return _judged(brokers, (load, direct), codes)


def two_elections(folder: Path, kinds: str) -> Judged:
    """The second broker leads, writes a tail that no other has, and dies; then the first one leads."""
    with a_set(folder, kinds) as (brokers, _):
        first, second = brokers.members
        load, more = Load(brokers.namesrv), Load(brokers.namesrv)
        with load.running():
            load.more(50)
        brokers.elect(second)
        brokers.in_sync()
        until(brokers.logs_are_equal, "nothing is under way")
        # Without a controller the set cannot shrink: the dead broker may still be elected.
        brokers.controller.kill()
        first.kill()
        with closing(Direct(second.address, "tail")) as direct:
            for _ in range(30):
                direct.begin()
            codes = direct.finish()
        second.kill()
        brokers.controller.start()
        first.launch()
        until(lambda: brokers.master() is first, "the other one leads")
        with more.running():
            more.more(50)
        second.launch()
        # What RocketMQ acknowledges alone is not judged here: it loses that.
        return _judged(brokers, (load, more), codes)
