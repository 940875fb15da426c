"""Lite topics: Python's SDK at PocketMQ, and by --reference at the real proxy 5.5.0 in cluster mode.

And a store of PocketMQ's with lite topics under a broker 5.5.0.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from pocketmq.admin import Admin
from pocketmq.model.tables import GroupConfig
from tests.interop import sdks
from tests.interop.brokers import JavaBroker
from tests.interop.conftest import Shared
from tests.interop.driver import Driver
from tests.interop.grpc_places import Ours, ProxyProcess
from tests.interop.sdks import Sdk
from tests.kit.waiting import until

LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}
TOPIC = "Chats"


class Cluster:
    """The real ones: lite topics are served by a proxy in cluster mode only."""

    def __init__(self, folder: Path) -> None:
        self.broker = JavaBroker(folder / "broker", version="5.5.0", config=LMQ).start()
        self.proxy = ProxyProcess(folder / "proxy", namesrv=self.broker.namesrv)
        self.proxy.start()
        self.grpc = f"127.0.0.1:{self.proxy.grpc_port}"

    def make(self, groups: dict[str, dict[str, str]]) -> Self:
        async def made() -> None:
            async with Admin(name_server=self.broker.namesrv) as admin:
                await admin.topics.create(TOPIC, queues=4, attributes="+message.type=LITE")
                for name, given in groups.items():
                    attributes = {f"+{key}": value for key, value in given.items()}
                    extra = {"attributes": attributes}
                    await admin.groups.create(GroupConfig(name, retry_max_times=1, extra=extra))

        asyncio.run(made())
        return self

    def close(self) -> None:
        self.proxy.kill()
        self.broker.kill()


def bound(**more: str) -> dict[str, str]:
    return {"lite.bind.topic": TOPIC, **{k.replace("_", "."): v for k, v in more.items()}}


GROUPS = {
    "shared": bound(),
    "exclusive": bound(lite_sub_model="Exclusive"),
    "all": bound(lite_sub_wildcard="true"),
    "few": bound(lite_sub_client_quota="1"),
}


def make_ours(place: Ours) -> None:
    place.topic_named(TOPIC, "LITE")
    for name, attributes in GROUPS.items():
        place.group_named(name, retry_max_times=1, attributes=attributes)


@pytest.fixture(params=["ours", pytest.param("cluster", marks=pytest.mark.reference)])
def grpc(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "ours":
        with Ours() as running:
            make_ours(running)
            yield running.grpc
        return
    made = Cluster(tmp_path)
    try:
        yield made.make(GROUPS).grpc
    finally:
        made.close()


@pytest.fixture
def driver(shared: Shared) -> Driver:
    return shared.get(
        "sdk-python", lambda: sdks.start("python", shared.folder / "sdk-python"), Driver.close
    )


def said(lite: str, *bodies: str, **properties: str) -> list[dict[str, Any]]:
    return [
        {"topic": TOPIC, "body": body, "lite": lite, "properties": properties} for body in bodies
    ]


def test_the_sdks_consumer_gets_lite_topics(grpc: str, driver: Driver) -> None:
    """In their order, what came before, and one that fails; exclusive ones; all of a wildcard group."""
    with Sdk(driver, grpc) as sdk:
        producer = sdk.producer(TOPIC)
        producer.send(*said("a", "1", "2"), *said("n", "unheard of"))
        first = sdk.lite("shared", TOPIC, "a", "b")
        assert sorted(first.wait(2)) == [("1", 1), ("2", 1)]
        producer.send(*said("b", "failed", fail_times="1"))
        assert first.wait(4)[2:] == [("failed", 1), ("failed", 2)]
        consumed = driver.consumed[first.name]
        assert [each.message.properties["__LITE_TOPIC"] for each in consumed] == list("aabb")

        one = sdk.lite("exclusive", TOPIC, "x")
        producer.send(*said("x", "to one"))
        one.wait(1)
        other = sdk.lite("exclusive", TOPIC, "x")
        other.until_started()
        producer.send(*said("x", "to the other"))
        other.wait(1)
        assert (one.seen, other.seen) == ([("to one", 1)], [("to the other", 1)])

        everything = sdk.lite("all", TOPIC)
        assert len(everything.wait(6)) == 6
        first.unsubscribe("a")
        producer.send(*said("a", "unheard"))
        everything.wait(7)
        assert len(first.seen) == 4


@pytest.mark.reference
def test_rocketmq_opens_a_store_with_lite_topics(
    tmp_path: Path, driver: Driver, shared: Shared
) -> None:
    """Without our queues: it makes them anew from the log, with the offsets that we gave."""
    store = tmp_path / "store"
    place = Ours(store=str(store))
    with place:
        make_ours(place)
        with Sdk(driver, place.grpc) as sdk:
            sdk.producer(TOPIC).send(*said("a", "1", "2", "3"), *said("b", "1"))
    shutil.rmtree(store / "consumequeue")
    broker = JavaBroker(tmp_path / "java", version="5.5.0", config=LMQ, store=store)
    try:
        broker.start()
        tool = shared.mqadmin("5.5.0").at(broker.namesrv)

        def ends() -> list[str]:
            asked = [tool("getLiteTopicInfo", "-p", TOPIC, "-l", name).rows for name in "ab"]
            return [rows[-1][2] for rows in asked]

        until(lambda: ends() == ["3", "1"], "the light queues")
    finally:
        broker.kill()
