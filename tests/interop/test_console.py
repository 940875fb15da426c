"""The web console over Apache's own brokers: what a cluster without PocketMQ lets be seen and done."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer
from tests.console.console_peer import Site, User, browser
from tests.console.test_api_groups import member
from tests.interop.brokers import RunningBroker, make_broker
from tests.interop.conftest import Shared
from tests.interop.driver import Sent, Session, message
from tests.kit.waiting import until_async


@asynccontextmanager
async def _console_over(broker: RunningBroker) -> AsyncIterator[Site]:
    config = ConsoleConfig(port=0, sample_interval_ms=500)
    async with (
        ConsoleServer(config, {"name_server": broker.namesrv}) as server,
        browser(server) as user,
    ):
        await user.open()
        yield Site(broker.namesrv, {}, server, user)


@pytest.mark.parametrize(
    "kind", ["rocketmq-4.9.7", pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference)]
)
async def test_the_console_serves_brokers_of_apache(
    kind: str, shared: Shared, topic: str, group: str
) -> None:
    """One console for PocketMQ's and Apache's brokers; members are asked, and compared here."""
    apache = await asyncio.to_thread(shared.broker, kind)
    async with _console_over(apache) as running:
        user = running.user

        async def reached() -> Any:
            # The first look at a JVM that has just started may take longer than it is given.
            [found] = (await user.read("/overview"))["brokers"]
            return found if found["reachable"] else None

        broker = await until_async(reached)
        assert not broker["isPocketMq"]
        assert broker["version"].startswith("V" + kind.partition("-")[2][0])
        found = await user.read(f"/brokers/{broker['broker']}")
        assert found["runtime"]["brokerVersionDesc"] == broker["version"]
        assert {each["changeable"] for each in found["settings"]} == {None}
        made = await user.do("PUT", f"/topics/{topic}", {"readQueues": 4, "writeQueues": 4})
        assert made == {"brokers": [broker["broker"]], "created": True}
        await user.do("PUT", f"/groups/{group}", {"retryMaxTimes": 5})
        await _routed(user, topic)
        message = await _messages_page_and_are_found(running, topic, group)
        await _members_differ(running, topic, group)
        track = await user.read(f"/messages/{message['msgId']}/track", topic=topic)
        assert [(each["group"], each["verdict"]) for each in track["tracks"]] == [(group, None)]
        assert track["tracks"][0]["trackType"] == "NOT_ONLINE"
        to_begin = {"topic": topic, "to": "earliest"}
        moved = await user.do("POST", f"/groups/{group}/reset", to_begin)
        assert [each["to"] for each in moved["steps"]] == [0, 0, 0, 0]
        refused = await user.call("PUT", f"/groups/{group}/mode", {"mode": "isolate"})
        assert (refused.status, refused.json["code"]) == (501, "NOT_SUPPORTED")
        delays = (await user.read("/delays"))["brokers"][0]["levels"]
        assert len(delays) == 18
        await user.do("PUT", "/kv", {"namespace": topic, "key": "k", "value": "v"})
        table = await user.read("/kv", namespace=topic)
        assert table["items"] == [{"key": "k", "value": "v"}]
        await user.do("DELETE", f"/groups/{group}")
        await user.do("DELETE", f"/topics/{topic}")


async def _messages_page_and_are_found(running: Site, topic: str, group: str) -> Any:
    """Twelve messages over four queues: in pages, by key, by id; and who sent them."""
    user = running.user
    async with Producer(
        group, name_server=running.name_server, heartbeat_interval_ms=500
    ) as producer:
        for number in range(12):
            body = f"{number}".encode()
            await producer.send(Message(topic, body, tags="tagB", keys=f"k{number}"))

        async def dispatched() -> bool:
            return bool((await user.read(f"/topics/{topic}"))["messages"] == 12)

        await until_async(dispatched)
        page = await user.read("/messages", topic=topic, size=5)
        bodies = [each["body"]["text"] for each in page["items"]]
        while page["cursor"]:
            page = await user.read("/messages", topic=topic, size=5, cursor=page["cursor"])
            bodies += [each["body"]["text"] for each in page["items"]]
        assert sorted(bodies, key=int) == [str(number) for number in range(12)]
        [message] = (await user.read("/messages", topic=topic, key="k7"))["items"]
        by_id = await user.read(f"/messages/{message['offsetMsgId']}")
        assert by_id["body"]["text"] == "7"

        async def producers() -> Any:
            return (await user.read("/producers", group=group))["items"]

        assert [each["group"] for each in await until_async(producers)] == [group]
    return message


@pytest.fixture(scope="module")
def traced_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """PocketMQ with the trace topic, which no client may create."""
    folder = tmp_path_factory.mktemp("traced")
    broker = make_broker("pocketmq", folder, config={"traceTopicEnable": "true"}).start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("version", ["4.9.8-JSON", "5.5.0-JSON"])
async def test_the_trace_of_an_official_producer_is_read(
    version: str, traced_broker: RunningBroker, shared: Shared, topic: str, group: str
) -> None:
    """Trace timeline: the records that Java writes while its producer runs."""

    def send(session: Session) -> Sent:
        producer = session.producer(traced_broker.namesrv, group, trace=True)
        [sent] = producer.send(message(topic, "traced", tags="t", keys=f"{topic}-key"))
        return sent

    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(_console_over(traced_broker))
        user = running.user
        await user.do("PUT", f"/topics/{topic}", {"readQueues": 1, "writeQueues": 1})
        session = stack.enter_context(shared.java(version).session())
        sent = await asyncio.to_thread(send, session)

        async def traces() -> Any:
            return (await user.read("/trace", id=sent.msg_id))["traces"]

        [trace] = await until_async(traces)
        assert (trace["topic"], trace["tags"], trace["keys"]) == (topic, "t", f"{topic}-key")
        [span] = trace["spans"]
        assert (span["kind"], span["group"], span["status"]) == ("PUB", group, "SUCCESS")
        assert span["fields"]["offsetMsgId"] == sent.offset_msg_id
        by_key = await user.read("/trace", key=f"{topic}-key", topic=topic)
        assert [each["msgId"] for each in by_key["traces"]] == [sent.msg_id]


async def _routed(user: User, topic: str) -> None:
    """Apache's brokers tell their name server of a new topic a moment later."""

    async def known() -> Any:
        return (await user.get(f"/topics/{topic}")).status == 200

    await until_async(known)


async def _members_differ(running: Site, topic: str, group: str) -> None:
    """E3's two members: each one's own subscription beside the stored one, without a PocketMQ broker."""
    user = running.user
    async with (
        member(running, "A", "tagA", group=group, topic=topic),
        member(running, "B", "tagB", group=group, topic=topic),
    ):

        async def both() -> Any:
            reply = await user.get(f"/groups/{group}")
            if reply.status != 200 or reply.json["verdict"]["agree"] is not False:
                return None
            return reply.json

        found = await until_async(both)
        assert found["verdict"]["source"] == "members"
        own = {
            each["clientId"]: [one["expression"] for one in each["subscriptions"]][:1]
            for each in found["members"]
        }
        assert own == {"127.0.0.1@A": ["tagA"], "127.0.0.1@B": ["tagB"]}
        camps = found["verdict"]["findings"][0]["camps"]
        assert sorted(each["expression"] for each in camps) == ["tagA", "tagB"]
        assert sum(bool(each["differs"]) for each in found["members"]) >= 1
