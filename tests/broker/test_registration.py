"""A broker's entries at name servers: the one of its process, and others over the wire."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.nameservers import registration
from pocketmq.broker.nameservers.registration import BrokerIdentity, Registration
from pocketmq.broker.tables import topic_config
from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG
from pocketmq.remoting.address_list import split_addresses
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.store import StoreConfig
from tests.broker.serving import Peer, serving
from tests.kit.waiting import until_async


@asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    async with NameServer(NamesrvConfig(listen_port=0), SystemClock()) as server:
        await server.listen()
        yield server


def route(server: NameServer, topic: str) -> Any:
    """What the name server knows of a topic on broker `b`: (read, write, perm), or None."""
    queues = server.routes._topics.get(topic, {}).get("b")
    return queues and (queues.read_queues, queues.write_queues, queues.perm)


@pytest.mark.parametrize("compressed", [False, True])
async def test_every_name_server_knows_the_broker_before_it_is_ready(
    tmp_path: Path, compressed: bool
) -> None:
    """Two name servers over the wire, plain and compressed; a clean stop unregisters at both."""
    async with name_server() as one, name_server() as two:
        addresses = f"{one.address};{two.address}"
        async with serving(
            tmp_path, namesrv_addr=addresses, compressed_register=compressed
        ) as broker:
            for server in (one, two):
                assert server.routes.brokers["b"].addresses == {0: broker.address}
                assert route(server, "TBW102") == (8, 8, 7)
        for server in (one, two):
            assert "b" not in server.routes.brokers
            assert route(server, "TBW102") is None


async def test_a_new_topic_has_its_route_when_its_request_is_answered(tmp_path: Path) -> None:
    """Traps 16, 20: clients ask for it at once, as for the one of a new group's retry topic."""
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address) as broker:
            async with await Peer.at(broker) as peer:
                await peer.produce("T")
                assert route(server, "T") == (4, 4, 6)
                await peer.heartbeat("g", {"T": "*"})
                assert route(server, "%RETRY%g") == (1, 1, 6)
                # A member that is notified asks for the route at once, too, and then not for 30 s.
                opaque = peer.send_heartbeat("h", {"T": "*"})
                notice = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                while (await peer.request(notice)).ext != {"consumerGroup": "h"}:
                    pass
                assert route(server, "%RETRY%h") == (1, 1, 6)
                await peer.answer(opaque)
                change = {"topic": "T", "readQueueNums": "2", "writeQueueNums": "1", "perm": "4"}
                change |= {
                    "defaultTopic": "TBW102",
                    "topicFilterType": "SINGLE_TAG",
                    "order": "false",
                }
                await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, change)
                assert route(server, "T") == (2, 1, 4)
                broker.parts.tables.topics.update(TopicConfig("T", 3, 3))
                await until_async(lambda: route(server, "T") == (3, 3, 6))


async def test_a_silent_name_server_does_not_delay_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a broker with more topics than are told in one go."""
    monkeypatch.setattr(topic_config, "_TOLD_S", 0.05)
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address) as broker:
            tellings: list[int] = []

            async def deaf(*_: object, **__: object) -> None:
                tellings.append(1)
                await asyncio.Event().wait()

            monkeypatch.setattr(broker.registration, "register_all", deaf)
            async with await Peer.at(broker) as peer:
                await peer.produce("T")
                assert tellings
                monkeypatch.setattr(topic_config, "_TOLD_S", 3_600)
                monkeypatch.setattr(registration, "_MANY", 5)
                await peer.produce("U")


async def test_an_unreachable_name_server_does_not_affect_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker serves, says so in its log, and is registered at the one that lives."""
    async with name_server() as gone:
        dead = gone.address
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=f"{dead};{server.address}"):
            assert "b" in server.routes.brokers
    assert f"cannot register, next try follows namesrv={dead}" in caplog.text
    assert f"cannot unregister namesrv={dead}" in caplog.text


async def test_a_restarted_name_server_soon_knows_the_broker(
    tmp_path: Path,
) -> None:
    """It knew no broker for up to 30 s: clients that asked for a topic got TOPIC_NOT_EXIST."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(name_server())
        namesrv, port = first.address, int(first.address.rpartition(":")[2])
        broker = await stack.enter_async_context(serving(tmp_path, namesrv_addr=namesrv))
        # A minute passes from here until the next round.
        broker.registration.wait_ms = 60_000
        async with await Peer.at(broker) as peer:
            await peer.produce("T")
        await first.__aexit__(None, None, None)
        await until_async(lambda: namesrv not in broker.registration._taken)
        async with NameServer(NamesrvConfig(listen_port=port), SystemClock()) as second:
            await second.listen()
            await until_async(lambda: route(second, "T") == (4, 4, 6))
            await until_async(lambda: broker.registration.is_registered)


async def test_a_broker_that_dies_is_gone_from_the_route_at_once(tmp_path: Path) -> None:
    """Trap 27: its connection is its life."""
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address) as broker:
            broker.registration._client.close_address(server.address)
            await until_async(lambda: "b" not in server.routes.brokers)
            broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
            await until_async(lambda: "b" in server.routes.brokers)


async def test_unchanged_tables_are_not_sent_when_the_settings_say_so(tmp_path: Path) -> None:
    """forceRegister=false asks QUERY_DATA_VERSION first."""
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address, force_register=False) as broker:
            assert not await broker.registration.is_news(server.address, 3_000)
            broker.parts.tables.topics.topics["T"] = TopicConfig("T")
            await broker.registration.register_all(check_order=False, force=False)
            assert route(server, "T") is None
            broker.parts.tables.topics.data_version = broker.parts.tables.topics.data_version.next(
                broker.clock.now_ms()
            )
            assert await broker.registration.is_news(server.address, 3_000)
            await broker.registration.register_all(check_order=False, force=False)
            assert route(server, "T") == (16, 16, 6)


async def test_order_topics_come_from_the_name_server(tmp_path: Path) -> None:
    """ORDER_TOPIC_CONFIG in the answer of a registration sets and clears `order`."""
    async with name_server() as server:
        server.kv_config.put(ORDER_TOPIC_CONFIG, "TBW102", "b:8")
        async with serving(tmp_path, namesrv_addr=server.address) as broker:
            assert broker.parts.tables.topics.is_order("TBW102")
            server.kv_config.delete(ORDER_TOPIC_CONFIG, "TBW102")
            server.kv_config.put(ORDER_TOPIC_CONFIG, "SELF_TEST_TOPIC", "b:1")
            await broker.registration.register_all(check_order=True)
            assert not broker.parts.tables.topics.is_order("TBW102")
            assert broker.parts.tables.topics.is_order("SELF_TEST_TOPIC")


async def test_a_restricted_broker_restricts_every_topic_that_it_tells(tmp_path: Path) -> None:
    """brokerPermission is anded into the permission of each topic."""
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address, broker_permission=4):
            assert route(server, "SELF_TEST_TOPIC") == (1, 1, 4)


async def test_a_broker_that_gave_up_its_number_does_not_reclaim_it(tmp_path: Path) -> None:
    """Any caller may ask it to register meanwhile; under a number that it is given it is there again."""
    async with name_server() as server:
        async with serving(tmp_path, namesrv_addr=server.address) as broker:
            addresses = server.routes.brokers["b"].addresses
            broker.registration.let_go()
            addresses[0] = "127.0.0.1:1"
            await broker.registration.start()
            assert addresses == {0: "127.0.0.1:1"}
            await broker.registration.renumber(1)
            assert addresses == {0: "127.0.0.1:1", 1: broker.address}


async def test_a_slave_learns_its_master(tmp_path: Path) -> None:
    clock = SystemClock()
    async with name_server() as server, RemotingClient({}, clock) as client:
        async with serving(tmp_path, namesrv_addr=server.address, ha_listen_port=7) as master:
            identity = BrokerIdentity("DefaultCluster", "b", 1, "127.0.0.1:1", "127.0.0.1:2")
            registration = Registration(
                master.config, identity, master.parts.tables.topics, client, None
            )
            await registration.start()
            assert registration.master_address == master.address
            assert registration.master_ha_address == "127.0.0.1:7"
            assert master.registration.master_address == ""
            assert server.routes.brokers["b"].addresses == {0: master.address, 1: "127.0.0.1:1"}


class Told:
    """A name server of the same process that notes what it is told."""

    def __init__(self) -> None:
        self.registered: list[set[str]] = []
        self.gone: list[str] = []

    def register(
        self,
        identity: BrokerIdentity,
        data_version: DataVersion,
        topics: Iterable[TopicConfig],
        *,
        are_changes: bool = False,
    ) -> Mapping[str, str]:
        self.registered.append({topic.topic for topic in topics})
        return {}

    def let_go(self, identity: BrokerIdentity) -> None:
        pass

    def unregister(self, identity: BrokerIdentity) -> None:
        self.gone.append(identity.address)

    def members(self, identity: BrokerIdentity) -> Mapping[str, str]:
        return {}

    def route(self, topic: str) -> None:
        return None

    def announce(self, namespace: str, key: str, value: str | None) -> None: ...

    def announced(self, namespace: str) -> Mapping[str, str]:
        return {}


async def test_the_local_name_server_knows_a_topic_before_the_answer(
    tmp_path: Path,
) -> None:
    """Invariant 2: no round, no connection; only what changed."""
    told = Told()
    config = BrokerConfig(broker_name="b", listen_port=0)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with Broker(config, store, name_server=told) as broker:
        assert {"TBW102", "b", "DefaultCluster"} <= told.registered[0]
        async with await Peer.at(broker) as peer:
            await peer.produce("T")
            assert told.registered[1:] == [{"T"}]
        address = broker.address
    assert told.gone == [address]


async def test_topics_that_change_together_are_all_told(tmp_path: Path) -> None:
    """The first one brings the version of the last; the others were then taken for known already."""
    config = BrokerConfig(broker_name="b", listen_port=0)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with NameServer(NamesrvConfig(listen_port=0), SystemClock()) as server:
        async with Broker(config, store, name_server=server.local) as broker:
            topics = broker.parts.tables.topics
            for name in ("made again", "changed"):
                topics.update(TopicConfig(name, 1, 1))
            await until_async(lambda: route(server, "changed") == (1, 1, 6))
            topics.delete("made again")
            server.routes.delete_topic("made again")
            for topic in ("new", "made again", "changed"):
                topics.update(TopicConfig(topic, 2, 2))
            await until_async(lambda: route(server, "new") == (2, 2, 6))
            assert route(server, "made again") == route(server, "changed") == (2, 2, 6)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("", []),
        (" ; ;", []),
        ("a:1", ["a:1"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        ("a:1, b:2;a:1;", ["a:1", "b:2"]),
    ],
)
def test_addresses_are_split_at_semicolons(text: str, addresses: list[str]) -> None:
    assert split_addresses(text) == addresses
