"""One command, a whole site: what is sent is there for consumers, tools and the next start."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.model.record import read_records
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.client import RemotingClient
from tests.cli.servers import Server
from tests.kit.waiting import until_async

CODE = RequestCode


class Site:
    """Started commands, and a client that talks to any of them."""

    def __init__(self, folder: Path, client: RemotingClient) -> None:
        self.folder = folder
        self.client = client
        self.servers: list[Server] = []

    def start(self, *words: str) -> tuple[Server, dict[str, str]]:
        server = Server(self.folder, *words)
        self.servers.append(server)
        return server, server.ready()

    def up(self, *words: str, namesrv_port: str = "0") -> tuple[Server, dict[str, str]]:
        return self.start(
            "up", "--namesrv-port", namesrv_port, "--broker-port", "0", "--data", "store", *words
        )

    async def ask(
        self, address: str, code: int, body: bytes = b"", **fields: Any
    ) -> RemotingCommand:
        ext = {name: str(value) for name, value in fields.items()}
        return await self.client.invoke(address, RemotingCommand(code, ext, body), 30_000)

    async def send(
        self, address: str, topic: str, body: bytes, queue_id: int = 0
    ) -> RemotingCommand:
        return await self.ask(
            address,
            CODE.SEND_MESSAGE_V2,
            body,
            a="p",
            b=topic,
            c="TBW102",
            d=4,
            e=queue_id,
            f=0,
            g=1,
            h=0,
            i="KEYS\x01k\x02TAGS\x01A",
        )

    async def pull(self, address: str, topic: str, queue_id: int = 0) -> list[bytes]:
        answer = await self.ask(
            address,
            CODE.PULL_MESSAGE,
            consumerGroup="g",
            topic=topic,
            queueId=queue_id,
            queueOffset=0,
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
        )
        assert answer.code == ResponseCode.SUCCESS, answer
        return [bytes(record.body) for record in read_records(bytes(answer.body))]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with RemotingClient({}, SystemClock()) as client:
        made = Site(tmp_path, client)
        yield made
        for server in made.servers:
            server.kill()


@pytest.fixture(params=[signal.SIGTERM, signal.SIGKILL], ids=["clean stop", "kill -9"])
def end(request: pytest.FixtureRequest) -> signal.Signals:
    found: signal.Signals = request.param
    return found


async def test_what_was_sent_is_there_after_a_restart(site: Site, end: signal.Signals) -> None:
    """The promise: with ASYNC_FLUSH nothing is lost on kill -9."""
    server, ready = site.up()
    for place in range(10):
        sent = await site.send(ready["broker"], "T", b"m%d" % place)
        assert sent.code == ResponseCode.SUCCESS
    await site.ask(
        ready["broker"],
        CODE.UPDATE_CONSUMER_OFFSET,
        consumerGroup="g",
        topic="T",
        queueId=0,
        commitOffset=7,
    )
    assert server.stop(end) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    _, ready = site.up()
    assert await site.pull(ready["broker"], "T") == [b"m%d" % place for place in range(10)]
    route = await site.ask(ready["namesrv"], CODE.GET_ROUTEINFO_BY_TOPIC, topic="T")
    (queues,) = fastjson.loads(route.body)["queueDatas"]
    assert queues["writeQueueNums"] == 4
    if end == signal.SIGTERM:
        offset = await site.ask(
            ready["broker"], CODE.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0
        )
        assert offset.ext == {"offset": "7"}


async def test_two_brokers_share_a_topic_behind_one_name_server(site: Site) -> None:
    """Several brokers in one cluster."""
    _, first = site.up("--broker-name", "a")
    second_server, second = site.start(
        *("broker", "--namesrv", first["namesrv"], "--port", "0"),
        *("--data", "store-b", "--broker-name", "b"),
    )
    for address in (first["broker"], second["broker"]):
        made = await site.ask(
            address,
            CODE.UPDATE_AND_CREATE_TOPIC,
            topic="T",
            defaultTopic="TBW102",
            readQueueNums=2,
            writeQueueNums=2,
            perm=6,
            topicFilterType="SINGLE_TAG",
            order="false",
        )
        assert made.code == ResponseCode.SUCCESS
        assert (await site.send(address, "T", address.encode())).code == ResponseCode.SUCCESS
    # The second broker registers over the wire, beside its answer.
    brokers: list[Any] = []

    async def both_are_routed() -> bool:
        route = await site.ask(first["namesrv"], CODE.GET_ROUTEINFO_BY_TOPIC, topic="T")
        brokers[:] = fastjson.loads(route.body)["brokerDatas"]
        return len(brokers) == 2

    await until_async(both_are_routed, "both brokers in the route")
    assert [broker["brokerName"] for broker in brokers] == ["a", "b"]
    for broker in brokers:
        address = broker["brokerAddrs"]["0"]
        assert await site.pull(address, "T") == [address.encode()]
    info = await site.ask(first["namesrv"], CODE.GET_BROKER_CLUSTER_INFO)
    assert fastjson.loads(info.body)["clusterAddrTable"] == {"DefaultCluster": ["a", "b"]}
    assert second_server.stop() == 0
    route = await site.ask(first["namesrv"], CODE.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert [b["brokerName"] for b in fastjson.loads(route.body)["brokerDatas"]] == ["a"]


async def test_a_broker_whose_process_dies_is_out_of_the_routes_at_once(site: Site) -> None:
    _, namesrv = site.start("namesrv", "--port", "0")
    broker, _ = site.start(
        "broker", "--namesrv", namesrv["namesrv"], "--port", "0", "--data", "store"
    )
    route = await site.ask(namesrv["namesrv"], CODE.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
    assert route.code == ResponseCode.SUCCESS
    broker.process.kill()
    broker.end()

    async def is_gone() -> bool:
        route = await site.ask(namesrv["namesrv"], CODE.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        return route.code == ResponseCode.TOPIC_NOT_EXIST

    await until_async(is_gone, "the route of the dead broker gone")


async def test_a_broker_comes_back_to_a_name_server_that_was_restarted(site: Site) -> None:
    """The periodic registration finds it; nothing has to be done at the broker."""
    namesrv, ready = site.start("namesrv", "--port", "0")
    address = ready["namesrv"]
    site.start("broker", "--namesrv", address, "--port", "0", "--data", "store")
    assert namesrv.stop() == 0
    site.start("namesrv", "--port", address.rpartition(":")[2])
    broker = site.servers[1]
    log = broker.log_path
    # Its next registration is due within 10 s of the start; a changed topic would bring it sooner.
    assert "broker serves" in log.read_text()
    async with RemotingClient({}, SystemClock()) as other:
        where = next(
            word.partition("=")[2]
            for word in log.read_text().split()
            if word.startswith("address=")
        )
        sent = await other.invoke(
            where,
            RemotingCommand(
                CODE.UPDATE_AND_CREATE_TOPIC,
                {
                    "topic": "T",
                    "defaultTopic": "TBW102",
                    "readQueueNums": "1",
                    "writeQueueNums": "1",
                    "perm": "6",
                    "topicFilterType": "SINGLE_TAG",
                    "order": "false",
                },
            ),
            30_000,
        )
        assert sent.code == ResponseCode.SUCCESS

    async def is_back() -> bool:
        route = await site.ask(address, CODE.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        return route.code == ResponseCode.SUCCESS

    await until_async(is_back, "the broker back at its name server")
