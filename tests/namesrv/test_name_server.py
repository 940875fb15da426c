"""The name server over a real socket."""

import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.namesrv.waiting import CLIENT_MAX, TIME_MS
from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import ConfigFile
from tests.kit.waiting import until_async


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(clock: ManualClock, tmp_path: Path) -> AsyncIterator[NameServer]:
    kv_file = ConfigFile(str(tmp_path / "namesrv" / "kvConfig.json"))
    async with NameServer(NamesrvConfig(listen_port=0), clock, kv_file=kv_file) as running:
        await running.listen()
        yield running


@pytest.fixture
async def client(clock: ManualClock) -> AsyncIterator[RemotingClient]:
    async with RemotingClient({}, clock) as connected:
        yield connected


def ext(**fields: object) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}


def register(
    address: str = "127.0.0.1:10911", broker_id: int = 0, crc: int | None = None, **more: object
) -> RemotingCommand:
    topic = {"perm": 6, "readQueueNums": 4, "topicName": "T", "writeQueueNums": 4}
    body = fastjson.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 1, "timestamp": 5},
                "topicConfigTable": {"T": topic},
            },
        }
    )
    fields = ext(
        brokerName="a",
        brokerAddr=address,
        clusterName="c",
        haServerAddr="127.0.0.1:10912",
        brokerId=broker_id,
        bodyCrc32=zlib.crc32(body) & 0x7FFF_FFFF if crc is None else crc,
    )
    fields |= ext(**more)
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, body)


async def ask(
    client: RemotingClient, server: NameServer, code: int, body: bytes = b"", **fields: object
) -> RemotingCommand:
    return await client.invoke(server.address, RemotingCommand(code, ext(**fields), body), 30_000)


async def test_a_closed_connection_leaves_the_routes_at_once(
    server: NameServer, client: RemotingClient, clock: ManualClock
) -> None:
    """Wire trap 27."""
    async with RemotingClient({}, clock) as broker:
        answer = await broker.invoke(server.address, register(), 30_000)
        assert answer.code == ResponseCode.SUCCESS
        route = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        assert b'"brokerAddrs":{"0":"127.0.0.1:10911"}' in bytes(route.body)
    await until_async(lambda: not server.routes.topics())
    route = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert route.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_is_removed_and_its_connection_closed(
    server: NameServer, client: RemotingClient, clock: ManualClock
) -> None:
    await client.invoke(server.address, register(), 30_000)
    assert server.scan() == 0
    clock.advance_ms(120_001)
    assert server.scan() == 1
    assert server.routes.topics() == []
    await until_async(lambda: client.addresses == [])


async def test_a_slave_is_told_its_master(server: NameServer, client: RemotingClient) -> None:
    await client.invoke(server.address, register(), 30_000)
    answer = await client.invoke(server.address, register("127.0.0.1:10921", 1), 30_000)
    assert answer.ext == {"haServerAddr": "127.0.0.1:10912", "masterAddr": "127.0.0.1:10911"}


async def test_a_registration_with_a_wrong_checksum_is_refused(
    server: NameServer, client: RemotingClient
) -> None:
    answer = await client.invoke(server.address, register(crc=7), 30_000)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert server.routes.topics() == []


async def test_only_those_are_told_of_a_topic_who_wait_for_it(
    server: NameServer, client: RemotingClient, clock: ManualClock
) -> None:
    """RocketMQ's clients do not say that they can be told, and get nothing that they do not know."""
    told: list[tuple[str, str | None]] = []

    def waiter(name: str) -> RemotingClient:
        def note(request: RemotingCommand, _: Connection) -> None:
            told.append((name, (request.ext or {}).get("topic")))

        return RemotingClient({PocketRequestCode.NOTIFY_TOPIC_KNOWN: note}, clock)

    async def ask_for(asker: RemotingClient, topic: str, **more: str) -> None:
        answer = await ask(
            asker, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, b"", topic=topic, **more
        )
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST

    async with waiter("ours") as ours, waiter("late") as late, waiter("theirs") as theirs:
        await ask_for(late, "T", tellWhenKnown="true")
        async with waiter("gone") as gone:
            await ask_for(gone, "T", tellWhenKnown="true")
        await until_async(lambda: server.waiting.count == 1)
        clock.advance_ms(TIME_MS)
        await ask_for(theirs, "T", acceptStandardJsonOnly="true")
        await ask_for(ours, "T", tellWhenKnown="true")
        await ask_for(ours, "T", tellWhenKnown="true")
        clock.advance_ms(1)
        server.scan()
        assert server.waiting.count == 1
        await client.invoke(server.address, register(), 30_000)
        await until_async(lambda: told == [("ours", "T")])
        # What they were told before would have come before these answers.
        for each in (late, theirs):
            await ask_for(each, "other")
        assert told == [("ours", "T")]
        for number in range(CLIENT_MAX + 5):
            await ask_for(ours, f"T{number}", tellWhenKnown="true")
        assert server.waiting.count == CLIENT_MAX
    await until_async(lambda: server.waiting.count == 0)


async def test_the_data_version_says_whether_a_broker_must_register(
    server: NameServer, client: RemotingClient
) -> None:
    await client.invoke(server.address, register(), 30_000)
    fields = ext(brokerName="a", brokerAddr="127.0.0.1:10911", clusterName="c", brokerId=0)
    for counter, changed in ((1, "false"), (2, "true")):
        answer = await client.invoke(
            server.address,
            RemotingCommand(
                RequestCode.QUERY_DATA_VERSION,
                dict(fields),
                fastjson.dumps({"counter": counter, "timestamp": 5}),
            ),
            30_000,
        )
        assert answer.ext == {"changed": changed}
        assert fastjson.loads(answer.body) == {"counter": 1, "timestamp": 5}


async def test_key_values_survive_a_restart(
    server: NameServer, client: RemotingClient, clock: ManualClock, tmp_path: Path
) -> None:
    code = RequestCode
    missing = await ask(client, server, code.GET_KV_CONFIG, namespace="n", key="k")
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    await ask(client, server, code.PUT_KV_CONFIG, namespace="n", key="k", value="v 中")
    await ask(client, server, code.PUT_KV_CONFIG, namespace="n", key="gone", value="x")
    await ask(client, server, code.DELETE_KV_CONFIG, namespace="n", key="gone")
    kv_file = ConfigFile(str(tmp_path / "namesrv" / "kvConfig.json"))
    async with NameServer(NamesrvConfig(listen_port=0), clock, kv_file=kv_file) as again:
        await again.listen()
        found = await ask(client, again, code.GET_KV_CONFIG, namespace="n", key="k")
        assert found.ext == {"value": "v 中"}
        listed = await ask(client, again, code.GET_KVLIST_BY_NAMESPACE, namespace="n")
        assert fastjson.loads(listed.body) == {"table": {"k": "v 中"}}
        unknown = await ask(client, again, code.GET_KVLIST_BY_NAMESPACE, namespace="other")
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND


async def test_order_configuration_is_in_routes_only_if_enabled(
    server: NameServer, client: RemotingClient
) -> None:
    code = RequestCode
    await client.invoke(server.address, register(), 30_000)
    await ask(
        client, server, code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4"
    )
    route = await ask(client, server, code.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert "orderTopicConf" not in fastjson.loads(route.body)
    answer = await ask(client, server, code.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
    assert answer.code == ResponseCode.SUCCESS
    route = await ask(client, server, code.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert fastjson.loads(route.body)["orderTopicConf"] == "a:4"
    config = await ask(client, server, code.GET_NAMESRV_CONFIG)
    assert b"orderMessageEnable=true\n" in bytes(config.body)


@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/etc/passwd",
        "configStorePath=/tmp/x",
        "listenPort=1",
        "orderMessageEnable=true\nbindAddress=0.0.0.0",
    ],
)
async def test_paths_and_addresses_cannot_be_changed_over_the_wire(
    server: NameServer, client: RemotingClient, text: str
) -> None:
    """CVE-2023-37582: all of a change is refused, not only the dangerous part."""
    answer = await ask(client, server, RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())
    assert answer.code == ResponseCode.NO_PERMISSION
    assert not server.config.order_message_enable


async def test_an_unknown_code_and_a_missing_field_are_answered(
    server: NameServer, client: RemotingClient
) -> None:
    answer = await ask(client, server, 9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "the topic: null" in (answer.remark or "")
    answer = await ask(client, server, RequestCode.PUT_KV_CONFIG, namespace="n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await ask(client, server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert fastjson.loads(answer.body) == {"topicList": []}


async def test_the_name_server_returns_the_brokers_of_a_name(
    server: NameServer, client: RemotingClient
) -> None:
    await client.invoke(server.address, register(), 30_000)
    await client.invoke(server.address, register("127.0.0.1:10921", 1), 30_000)
    answer = await ask(
        client, server, RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c", brokerName="a"
    )
    assert bytes(answer.body) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},'
        b'"brokerName":"a","cluster":"c"}}'
    )


class OwnBroker:
    """A broker of the name server's process, as it is entered by a call."""

    cluster, broker_name, broker_id = "c", "a", 0
    address, ha_address = "127.0.0.1:10911", "127.0.0.1:10912"


@pytest.mark.parametrize(
    "request_",
    [
        register("127.0.0.1:666"),
        register("127.0.0.1:10911"),
        register("127.0.0.1:10911", broker_id=1),
        register("127.0.0.1:10911", brokerName="another"),
        RemotingCommand(
            RequestCode.UNREGISTER_BROKER,
            ext(brokerName="a", brokerAddr="127.0.0.1:10911", clusterName="c", brokerId=0),
        ),
    ],
    ids=["its name", "its own words", "its address as a slave", "its address", "its end"],
)
async def test_nobody_speaks_for_the_broker_of_the_same_process(
    server: NameServer,
    client: RemotingClient,
    caplog: pytest.LogCaptureFixture,
    request_: RemotingCommand,
) -> None:
    """Clients would be sent to a stranger, or nowhere once its connection ends."""
    server.local.register(OwnBroker(), DataVersion(1, 1), [TopicConfig("T", 4, 4)])
    before = server.routes.cluster_info(), server.routes.route("T")
    answer = await client.invoke(server.address, request_, 30_000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "runs in the name server's own process" in (answer.remark or "")
    assert "refused" in caplog.text
    client.close_address(server.address)
    await until_async(lambda: not server._server.connections)
    assert (server.routes.cluster_info(), server.routes.route("T")) == before


async def test_requests_cannot_expire_the_broker_of_the_same_process(
    server: NameServer, client: RemotingClient, clock: ManualClock
) -> None:
    server.local.register(OwnBroker(), DataVersion(1, 1), [TopicConfig("T", 4, 4)])
    beat = ext(brokerName="a", brokerAddr="127.0.0.1:10911", clusterName="c")
    beat["heartbeatTimeoutMills"] = "1"
    request = RemotingCommand(RequestCode.BROKER_HEARTBEAT, beat)
    assert (await client.invoke(server.address, request, 30_000)).code == ResponseCode.SUCCESS
    clock.advance_ms(60_000)
    assert server.scan() == 0
    assert server.routes.route("T") is not None


async def test_another_broker_registers_beside_the_local_one(
    server: NameServer, client: RemotingClient
) -> None:
    """And as its slave; once it has left, its name is free."""
    own = OwnBroker()
    server.local.register(own, DataVersion(1, 1), [TopicConfig("T", 4, 4)])
    for request in (register("127.0.0.1:666", brokerName="b"), register("127.0.0.1:667", 1)):
        assert (await client.invoke(server.address, request, 30_000)).code == 0
    server.local.unregister(own)
    assert (await client.invoke(server.address, register("127.0.0.1:666"), 30_000)).code == 0
