"""QUERY_ASSIGNMENT and message request modes (wire.md 2.6)."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.nameservers.registration import BrokerIdentity
from pocketmq.broker.pop.assignment import pop_share, pull_share
from pocketmq.model.data_version import DataVersion
from pocketmq.model.message import MessageQueue
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.store import StoreConfig
from tests.broker.serving import Peer, body_of, serving
from tests.namesrv.recordings import exchanges

QUEUES = [MessageQueue("T", "b", number) for number in range(8)]
MEMBERS = ["a", "b", "c", "d"]


async def assignment(peer: Peer, topic: str = "T", **more: Any) -> Any:
    body = {
        "clientId": "c1",
        "consumerGroup": "g",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": topic,
        **more,
    }
    return body_of(await peer.ask(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode()))


async def set_mode(peer: Peer, **body: Any) -> RemotingCommand:
    data = json.dumps({"consumerGroup": "g", "mode": "POP", "topic": "T", **body}).encode()
    return await peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, data)


def queue_ids(answer: Any) -> list[tuple[str, int]]:
    return [(a["mode"], a["messageQueue"]["queueId"]) for a in answer["messageQueueAssignments"]]


def test_a_member_pops_its_share_and_those_of_its_successors() -> None:
    """popShareQueueNum 1 of 4 members: two shares; the last member wraps round to the first."""
    assert [q.queue_id for q in pop_share(QUEUES, MEMBERS, "a", "AVG", 1)] == [0, 1, 2, 3]
    assert [q.queue_id for q in pop_share(QUEUES, MEMBERS, "d", "AVG", 1)] == [6, 7, 0, 1]


def test_a_share_that_covers_everybody_is_every_broker_once() -> None:
    for share in (0, -1, 3, 8):
        assert pop_share(QUEUES, MEMBERS, "a", "AVG", share) == [MessageQueue("T", "b", -1)]


def test_each_of_more_members_than_queues_pops_one() -> None:
    two = QUEUES[:2]
    assert [pop_share(two, MEMBERS, m, "AVG", 1)[0].queue_id for m in MEMBERS] == [0, 1, 0, 1]


def test_pulled_queues_are_shared_as_clients_share_them() -> None:
    """Every queue has exactly one member, by either strategy."""
    for strategy in ("AVG", "AVG_BY_CIRCLE"):
        shares = [pull_share(QUEUES, MEMBERS[:3], member, strategy) for member in MEMBERS[:3]]
        assert sorted(queue for share in shares for queue in share) == QUEUES
    assert pull_share(QUEUES, MEMBERS, "stranger", "AVG") == []


async def test_the_modes_decide_what_a_member_is_given(tmp_path: Path) -> None:
    """PULL by default; POP when set, and still after a restart; a retry topic is pulled."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 4, 4))
        await peer.heartbeat("g", {"T": "*"})
        assert queue_ids(await assignment(peer)) == [("PULL", n) for n in range(4)]
        assert (await set_mode(peer, popShareQueueNum=0)).code == 0
        assert queue_ids(await assignment(peer)) == [("POP", -1)]
        assert queue_ids(await assignment(peer, "%RETRY%g")) == [("PULL", 0)]
        assert queue_ids(await assignment(peer, messageModel="BROADCASTING"))[0] == ("POP", 0)
        modes = body_of(await peer.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        assert modes["messageRequestModeMap"]["T"]["g"]["mode"] == "POP"
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.heartbeat("g", {"T": "*"})
        assert queue_ids(await assignment(peer)) == [("POP", -1)]


async def test_a_client_that_cannot_be_given_queues_keeps_what_it_has(tmp_path: Path) -> None:
    """No messageQueueAssignments: unknown topic, unknown strategy, a group without members."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 4, 4))
        assert await assignment(peer) == {}
        await peer.heartbeat("g", {"T": "*"})
        assert await assignment(peer, "Nowhere") == {}
        assert await assignment(peer, strategyName="BY_DICE") == {}


async def test_an_impossible_mode_is_refused_with_rocketmqs_codes(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, auto_create_subscription_group=False) as broker,
        await Peer.at(broker) as peer,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 4, 4))
        assert (await set_mode(peer, topic="%RETRY%g")).code == ResponseCode.NO_PERMISSION
        assert (await set_mode(peer, topic="Nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
        code = (await set_mode(peer)).code
        assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_recorded_assignments_are_answered_as_by_the_real_broker(tmp_path: Path) -> None:
    """What a Java 5.5.0 client asked a 5.5.0 broker, byte for byte in the answer's body."""
    async with (
        serving(tmp_path, broker_cluster_name="GoldenCluster") as broker,
        await Peer.at(broker) as peer,
    ):
        broker.config.broker_name = "golden-a"
        broker.parts.tables.topics.update(TopicConfig("WtPop", 2, 2))
        compared = 0
        for exchange in exchanges("b550-java550-fiveonly", "broker"):
            request, real = exchange.request, exchange.answer
            if request.code in (34, 400, 401) and real is not None:
                if request.code == 34 and b"WtGidPop" not in request.body:
                    continue
                ours = await peer.ask(request.code, request.ext, bytes(request.body), version=513)
                if request.code != 34:
                    compared += 1
                    said = bytes(ours.body).replace(b'"b"', b'"golden-a"')
                    assert (ours.code, ours.remark, said) == (0, real.remark, real.body)
        assert compared == 5


class Cluster:
    """A name server of the same process that knows one more broker."""

    def register(
        self,
        identity: BrokerIdentity,
        data_version: DataVersion,
        topics: Iterable[TopicConfig],
        *,
        are_changes: bool = False,
    ) -> Mapping[str, str]:
        return {}

    def let_go(self, identity: BrokerIdentity) -> None:
        pass

    def unregister(self, identity: BrokerIdentity) -> None:
        pass

    def members(self, identity: BrokerIdentity) -> Mapping[str, str]:
        return {}

    def announce(self, namespace: str, key: str, value: str | None) -> None: ...

    def announced(self, namespace: str) -> Mapping[str, str]:
        return {}

    def route(self, topic: str) -> Mapping[str, Any] | None:
        def queues(name: str, perm: int) -> dict[str, Any]:
            return {"brokerName": name, "perm": perm, "readQueueNums": 2, "writeQueueNums": 2}

        return {"queueDatas": [queues("c", 6), queues("b", 6), queues("silent", 2), {}]}


async def test_queues_of_all_brokers_are_shared_out(tmp_path: Path) -> None:
    """By the name server of the process; a broker that may not be read is left out."""
    config = BrokerConfig(broker_name="b", listen_port=0)
    store = StoreConfig(store_path_root_dir=str(tmp_path))
    async with (
        Broker(config, store, name_server=Cluster()) as broker,
        await Peer.at(broker) as peer,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        await peer.heartbeat("g", {"T": "*"})
        found = (await assignment(peer))["messageQueueAssignments"]
        where = [(a["messageQueue"]["brokerName"], a["messageQueue"]["queueId"]) for a in found]
        assert where == [("b", 0), ("b", 1), ("c", 0), ("c", 1)]


async def test_the_route_comes_from_a_name_server_over_the_wire(tmp_path: Path) -> None:
    """Two brokers at one name server: each knows the other's queues; without it, its own."""
    async with NameServer(NamesrvConfig(listen_port=0), SystemClock()) as server:
        async with (
            serving(tmp_path / "1", namesrv_addr=server.address) as one,
            await Peer.at(one) as peer,
        ):
            one.parts.tables.topics.update(TopicConfig("T", 2, 2))
            await one.registration.register_all(check_order=False)
            await peer.heartbeat("g", {"T": "*"})
            assert queue_ids(await assignment(peer)) == [("PULL", 0), ("PULL", 1)]
            assert await assignment(peer, "Nowhere") == {}
            one.config.namesrv_addr = ""
            assert queue_ids(await assignment(peer)) == [("PULL", 0), ("PULL", 1)]
