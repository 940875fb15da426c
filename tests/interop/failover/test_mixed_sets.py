"""Sets of Apache's brokers 5.5.0 and ours, under a controller of either: kill -9 loses nothing.

python -m pytest tests/interop/failover --reference --set-kills 30      every pairing, thirty deaths each
"""

import logging
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.servers import Server
from tests.interop.conftest import Shared, or_missing
from tests.interop.failover.load import Load
from tests.interop.failover.sets import NAME, BrokerSet, Controller
from tests.interop.mqadmin import Printed
from tests.kit.etcd import Etcd
from tests.kit.waiting import until

log = logging.getLogger(__name__)

# Controller, brokers: the first one leads at first. etcd: ours with three members of etcd behind it.
SETS = [
    ("java", "pocket pocket"),
    ("pocket", "pocket java"),
    *[
        pytest.param(*each, marks=pytest.mark.reference)
        for each in (
            ("java", "java java"),
            ("java", "java pocket"),
            ("java", "pocket java pocket"),
            ("pocket", "pocket pocket"),
            ("pocket", "java java pocket"),
            ("etcd", "pocket pocket pocket"),
        )
    ],
]


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    server = Server(tmp_path, "namesrv", "--port", "0")
    yield server.ready()["namesrv"]
    server.kill()


def deaths(count: int, chance: random.Random, more: Sequence[str] = ()) -> list[str]:
    """Who dies, in turn: each kind as often. Two deaths: of the master, and of the one that replaced it."""
    if count <= 2:
        return ["master"] * count
    kinds = ["master", "slave", "all", "controller", *more]
    found: list[str] = []
    while len(found) < count:
        found += chance.sample(kinds, len(kinds))
    return found[:count]


@pytest.mark.parametrize(("controller", "kinds"), SETS)
def test_kills_lose_nothing(
    controller: str, kinds: str, namesrv: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed = int(os.environ.get("POCKETMQ_SEED", random.randrange(2**32)))
    log.info("seed %d", seed)
    chance = random.Random(seed)
    etcd = Etcd(tmp_path, 3) if controller == "etcd" else None
    settings: dict[str, Any] = {} if etcd is None else {"controllerEtcd": ";".join(etcd.urls)}
    kind_ = "pocket" if etcd else controller
    decides = Controller(kind_, tmp_path / "controller", **settings)
    brokers = or_missing(lambda: BrokerSet(tmp_path, kinds.split(), decides, namesrv))
    try:
        if etcd is not None:
            etcd.start()
        decides.start()
        brokers.start()
        load = Load(namesrv)
        with load.running():
            load.more(20)
            for number, kind in enumerate(
                deaths(int(pytestconfig.getoption("--set-kills")), chance, ["etcd"] if etcd else [])
            ):
                die(kind, brokers, load, chance, etcd)
                log.info("%d %s: %d acknowledged", number, kind, len(load.acknowledged))
        until(brokers.logs_are_equal, "the logs are equal")
        assert not load.wrong(), seed
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"seed {seed}: {brokers.difference()}; {decides.row()}") from error
    finally:
        brokers.kill()
        decides.kill()
        if etcd is not None:
            etcd.kill()


def die(
    kind: str, brokers: BrokerSet, load: Load, chance: random.Random, etcd: Etcd | None
) -> None:
    """kill -9 under load, and back, until all are in sync again."""
    master = brokers.in_sync()
    load.more(chance.randint(1, 200))
    if kind == "controller":
        brokers.controller.kill()
        # Brokers serve without it.
        load.more(20)
        brokers.controller.start()
    if kind == "etcd" and etcd is not None:
        member = chance.randrange(3)
        etcd.kill(member)
        load.more(20)
        # The controller's next change goes over the two that are left.
        master.kill()
        load.more(20)
        etcd.start(member)
        master.launch()
    slaves = [each for each in brokers.members if each is not master]
    # The master first: once its slave is dead, Apache's acknowledges alone, before the controller agrees.
    # Dead a moment later, and back after its slave, it loses that (docs/failover.md).
    all_of_them = [master, *slaves]
    dying = {"master": [master], "slave": [chance.choice(slaves)], "all": all_of_them}.get(kind, [])
    for each in dying:
        each.kill()
    if kind in ("master", "slave"):
        load.more(20)
    for each in dying:
        each.launch()
    brokers.in_sync()
    load.more(20)


def test_mqadmin_at_our_controller(namesrv: str, tmp_path: Path, shared: Shared) -> None:
    """Version 5.5.0; electMaster ends with a stack trace at RocketMQ's own."""
    controller = Controller("pocket", tmp_path / "controller")
    brokers = BrokerSet(tmp_path, ["pocket", "pocket"], controller, namesrv)
    tool = shared.mqadmin("5.5.0").at(namesrv)
    at = ("-a", controller.address)
    try:
        controller.start()
        brokers.start()
        one, two = brokers.members
        assert (
            shown(tool("getControllerMetaData", *at))["ControllerLeaderAddress"]
            == controller.address
        )
        found = tool("getSyncStateSet", *at, "-b", NAME)
        assert shown(found)["MasterAddr"] == one.address
        assert found.out.count("alive=true") == 2, found
        elect = ("-bn", NAME, "-c", one.cluster)
        assert "CODE: 2012" in tool("electMaster", *at, "-b", 7, *elect).err
        assert shown(tool("electMaster", *at, "-b", 2, *elect))["BrokerMasterAddr"] == two.address
        brokers.in_sync()
        # A slave hears of an epoch with the first frame of it.
        until(
            lambda: tool("getBrokerEpoch", "-b", NAME).out.count("{epoch=2, startOffset=0") == 2,
            "both are in the second epoch",
        )
        clean = ("cleanBrokerMetadata", *at, "-bn", NAME, "-c", one.cluster, "-b")
        assert "CODE: 2009" in tool(*clean, "1").err
        assert "CODE: 2009" in tool(*clean, "one").err
        one.kill()
        until(lambda: "alive=false" in tool("getSyncStateSet", *at, "-b", NAME).out, "one is dead")
        tool(*clean, "1")
        assert "brokerId=1" not in tool("getSyncStateSet", *at, "-b", NAME).out
    finally:
        brokers.kill()
        controller.kill()


def shown(printed: Printed) -> dict[str, str]:
    """The lines `#key<tab>value`."""
    rows = (line[1:].split("\t") for line in printed.lines if line.startswith("#"))
    return {row[0]: row[1] for row in rows if len(row) == 2}
