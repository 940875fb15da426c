"""What a stranger can do at a name server, which knows no accounts, as RocketMQ's: every code, about T of a
broker of another process and of a broker in the name server's own.
"""

import copy
import zlib
from pathlib import Path

from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv import NameServer, NamesrvConfig
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.transport.client import RemotingClient
from tests.namesrv.test_name_server import OwnBroker, ext, register

RECORDED = Path(__file__).with_name("access.txt")
ELSEWHERE = register()
BODIES = {
    RequestCode.REGISTER_BROKER: ELSEWHERE.body,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
    ),
    RequestCode.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true",
}


async def changed_by(code: int, *, here: bool) -> str:
    """What one request of a stranger does: not served, nothing, or the names of what it changed."""
    clock = SystemClock()
    async with (
        NameServer(NamesrvConfig(listen_port=0), clock) as server,
        RemotingClient({}, clock) as broker,
        RemotingClient({}, clock) as stranger,
    ):
        await server.listen()
        if here:
            server.local.register(OwnBroker(), DataVersion(1, 1), [TopicConfig("T", 4, 4)])
        else:
            assert (await broker.invoke(server.address, ELSEWHERE, 30_000)).code == 0
        server.kv_config.put("n", "k", "before")

        def state() -> dict[str, object]:
            found: dict[str, object] = {
                "brokers": server.routes.cluster_info(),
                "route": server.routes.route("T"),
                "topics": server.routes.topics(),
                "values": server.kv_config.namespace("n"),
                "settings": server.config.to_properties(),
            }
            return copy.deepcopy(found)

        before = state()
        named = dict(ELSEWHERE.ext or {}) | ext(topic="T", cluster="c", namespace="n", key="k")
        body = BODIES.get(RequestCode(code), b"") if code in set(RequestCode) else b""
        named |= ext(value="after", bodyCrc32=zlib.crc32(body) & 0x7FFF_FFFF)
        named |= ext(haServerAddr="10.0.0.9:1", brokerAddr=before_address(server))
        if code == RequestCode.REGISTER_BROKER:
            named |= ext(brokerAddr="10.0.0.9:2")
        elif code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            named |= ext(topic="U")
        answer = await stranger.invoke(server.address, RemotingCommand(code, named, body), 30_000)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return "not served"
        after = state()
        return ", ".join(name for name in before if after[name] != before[name]) or "nothing"


def before_address(server: NameServer) -> str:
    """The address of the one broker that is registered."""
    [broker] = server.routes.cluster_info()["brokerAddrTable"].values()
    [address] = broker["brokerAddrs"].values()
    return str(address)


async def test_a_stranger_changes_what_the_recorded_table_says() -> None:
    """He can mislead clients about brokers elsewhere, but take no broker's place in its own process."""
    lines = []
    for code in (*RequestCode, *PocketRequestCode):
        elsewhere = await changed_by(code, here=False)
        if elsewhere == "not served":
            continue
        here = await changed_by(code, here=True)
        lines.append(f"{int(code):6} {code.name:38} {elsewhere:24} {here}".rstrip())
    table = f"{'':6} {'':38} {'elsewhere':24} here\n" + "\n".join(lines) + "\n"
    assert table == RECORDED.read_text(encoding="utf-8"), table
