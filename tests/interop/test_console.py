"""The web console over Apache's own brokers: what a cluster without PocketMQ lets be seen and done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.console.console_peer import Site, User, browser, until
from tests.console.test_api_groups import member
from tests.interop.brokers import make_broker
from tests.interop.conftest import or_missing

from pocketmq.client import Message, Producer
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer


@asynccontextmanager
async def _apache_site(kind: str, folder: Path) -> AsyncIterator[Site]:
    broker = or_missing(lambda: make_broker(kind, folder / "broker"))  # type: ignore[arg-type]
    async with AsyncExitStack() as stack:
        stack.callback(broker.kill)
        await asyncio.to_thread(broker.start)
        server = ConsoleServer(
            ConsoleConfig(port=0, sample_interval_ms=500), {"name_server": broker.namesrv}
        )
        await stack.enter_async_context(server)
        user = await stack.enter_async_context(browser(server))
        await user.open()
        yield Site(broker.namesrv, {}, server, user)


@pytest.mark.parametrize(
    "kind", ["rocketmq-4.9.7", pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference)]
)
async def test_the_console_serves_brokers_of_apache(kind: str, tmp_path: Path) -> None:
    """Issue 7: one console for PocketMQ's and Apache's brokers; members are asked, and compared here."""
    async with _apache_site(kind, tmp_path) as running:
        user = running.user
        overview = await user.read("/overview")
        [broker] = overview["brokers"]
        assert (broker["reachable"], broker["isPocketMq"]) == (True, False)
        assert broker["version"].startswith("V" + kind.partition("-")[2][0])
        found = await user.read(f"/brokers/{broker['name']}")
        assert found["runtime"]["brokerVersionDesc"] == broker["version"]
        assert {each["changeable"] for each in found["settings"]} == {None}
        made = await user.do("PUT", "/topics/T", {"readQueues": 4, "writeQueues": 4})
        assert made == {"brokers": [broker["name"]], "created": True}
        await user.do("PUT", "/groups/S", {"retryMaxTimes": 5})
        await _routed(user)
        async with Producer(
            "P", name_server=running.name_server, heartbeat_interval_ms=500
        ) as producer:
            for number in range(12):
                await producer.send(
                    Message("T", f"{number}".encode(), tags="tagB", keys=f"k{number}")
                )

            async def dispatched() -> bool:
                return bool((await user.read("/topics/T"))["messages"] == 12)

            await until(dispatched)
            page = await user.read("/messages", topic="T", size=5)
            bodies = [each["body"]["text"] for each in page["items"]]
            while page["cursor"]:
                page = await user.read("/messages", topic="T", size=5, cursor=page["cursor"])
                bodies += [each["body"]["text"] for each in page["items"]]
            assert sorted(bodies, key=int) == [str(number) for number in range(12)]
            [message] = (await user.read("/messages", topic="T", key="k7"))["items"]
            by_id = await user.read(f"/messages/{message['offsetMsgId']}")
            assert by_id["body"]["text"] == "7"

            async def producers() -> Any:
                return (await user.read("/producers", group="P"))["items"]

            assert [each["group"] for each in await until(producers)] == ["P"]
        await _members_differ(running, user)
        tracks = (await user.read(f"/messages/{message['msgId']}/track", topic="T"))["tracks"]
        assert [(each["group"], each["verdict"]) for each in tracks] == [("S", None)]
        assert tracks[0]["trackType"] == "NOT_ONLINE"
        moved = await user.do("POST", "/groups/S/reset", {"topic": "T", "to": "earliest"})
        assert [each["to"] for each in moved["steps"]] == [0, 0, 0, 0]
        refused = await user.call("PUT", "/groups/S/mode", {"mode": "isolate"})
        assert (refused.status, refused.json["code"]) == (501, "NOT_SUPPORTED")
        delays = (await user.read("/delays"))["brokers"][0]["levels"]
        assert len(delays) == 18
        await user.do("PUT", "/kv", {"namespace": "N", "key": "k", "value": "v"})
        assert (await user.read("/kv", namespace="N"))["items"] == [{"key": "k", "value": "v"}]
        await user.do("DELETE", "/groups/S")
        await user.do("DELETE", "/topics/T")


async def _routed(user: User) -> None:
    """Apache's brokers tell their name server of a new topic a moment later."""

    async def known() -> Any:
        return (await user.get("/topics/T")).status == 200

    await until(known)


async def _members_differ(running: Site, user: User) -> None:
    """E3's two members: each one's own subscription beside the stored one, without a PocketMQ broker."""
    async with member(running, "A", "tagA"), member(running, "B", "tagB"):

        async def both() -> Any:
            reply = await user.get("/groups/S")
            if reply.status != 200 or reply.json["verdict"]["agree"] is not False:
                return None
            return reply.json

        found = await until(both)
        assert found["verdict"]["source"] == "members"
        own = {
            each["clientId"]: [one["expression"] for one in each["subscriptions"]][:1]
            for each in found["members"]
        }
        assert own == {"127.0.0.1@A": ["tagA"], "127.0.0.1@B": ["tagB"]}
        camps = found["verdict"]["findings"][0]["camps"]
        assert sorted(each["expression"] for each in camps) == ["tagA", "tagB"]
        assert sum(bool(each["differs"]) for each in found["members"]) >= 1
