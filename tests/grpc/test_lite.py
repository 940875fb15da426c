"""Lite topics over gRPC: send, subscribe, receive, acknowledge; what RocketMQ 5.5.0 does is in lite.md."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, Code, LiteSubscriptionAction, MessageType
from pocketmq.model.record import read_record
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.testing.in_process import InProcess
from tests.grpc.asking import Asking, asking
from tests.grpc.front_site import front, message, receive, receiving, send
from tests.kit.waiting import until

BOUND = {"lite.bind.topic": "Chats"}


def lite_group(broker: Broker, name: str = "g", retries: int = 16, **more: str) -> None:
    attributes = {**BOUND, **{key.replace("_", "."): value for key, value in more.items()}}
    extra = {"attributes": attributes}
    broker.parts.tables.groups.update(GroupConfig(name, retry_max_times=retries, extra=extra))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[tuple[Broker, Asking]]:
    async with front(tmp_path, {"Chats": "LITE"}) as (broker, server):
        lite_group(broker)
        async with asking(server.address) as client:
            yield broker, client


async def say(client: Asking, name: str, *bodies: bytes) -> None:
    for body in bodies:
        sent = message("Chats", body, lite_topic=name, message_type=MessageType.LITE)
        assert (await send(client, sent)).status.code == Code.OK


async def sync(
    client: Asking,
    *names: str,
    action: LiteSubscriptionAction = LiteSubscriptionAction.PARTIAL_ADD,
    group: str = "g",
    **more: Any,
) -> Any:
    asked = classes["SyncLiteSubscriptionRequest"](
        action=action,
        topic={"name": "Chats"},
        group={"name": group},
        lite_topic_set=names,
        **more,
    )
    return (await client.ask("SyncLiteSubscription", asked)).status


async def get(client: Asking, group: str = "g", wait_s: int = 0) -> list[Any]:
    return await receive(client, "Chats", group, wait_s=wait_s)


async def done(client: Asking, *messages: Any, group: str = "g") -> list[int]:
    entries = [
        {
            "message_id": each.system_properties.message_id,
            "receipt_handle": each.system_properties.receipt_handle,
            "lite_topic": each.system_properties.lite_topic,
        }
        for each in messages
    ]
    asked = classes["AckMessageRequest"](
        group={"name": group}, topic={"name": "Chats"}, entries=entries
    )
    return [entry.status.code for entry in (await client.ask("AckMessage", asked)).entries]


async def change(client: Asking, got: Any, seconds: int = 0, **more: Any) -> Any:
    asked = classes["ChangeInvisibleDurationRequest"](
        group={"name": "g"},
        topic={"name": "Chats"},
        receipt_handle=got.system_properties.receipt_handle,
        message_id=got.system_properties.message_id,
        lite_topic=got.system_properties.lite_topic,
        invisible_duration={"seconds": seconds},
        **more,
    )
    return await client.ask("ChangeInvisibleDuration", asked)


def read(messages: list[Any]) -> list[tuple[str, bytes, int]]:
    return [
        (
            each.system_properties.lite_topic,
            each.body,
            each.system_properties.delivery_attempt,
        )
        for each in messages
    ]


async def test_a_client_gets_what_it_subscribes_and_in_order(site: tuple[Broker, Asking]) -> None:
    """Also what came before; nothing behind what is out; on the disk as RocketMQ 5.5.0 has it."""
    broker, client = site
    await say(client, "a", b"1", b"2")
    await say(client, "b", b"other")
    assert await get(client) == []
    assert (await sync(client, "a")).code == Code.OK
    got = await get(client)
    assert read(got) == [("a", b"1", 1), ("a", b"2", 1)]
    assert not got[0].user_properties
    words = got[1].system_properties.receipt_handle.split(" ")
    assert [words[0], *words[3:5], *words[6:8]] == ["0", "999", "0", "0", "1"]
    await say(client, "a", b"3")
    assert await get(client) == []
    assert await done(client, got[1]) == [Code.OK]
    assert await get(client) == []
    assert await done(client, got[0], got[0]) == [Code.OK, Code.OK]
    waiting = client.begin("ReceiveMessage", receiving("Chats"))
    answer = await client.end_of(waiting)
    assert len(answer.messages) == 3
    data = broker.parts.messages.store.record_at(0)
    assert data is not None
    properties = read_record(data).properties
    for each in (b"__LITE_TOPIC\x01a", b"INNER_MULTI_DISPATCH\x01%LMQ%$Chats$a"):
        assert each in properties
    assert b"INNER_MULTI_QUEUE_OFFSET\x010" in properties


async def test_what_failed_comes_again_alone_and_at_last_is_dead(
    site: tuple[Broker, Asking],
) -> None:
    broker, client = site
    lite_group(broker, retries=1)
    await sync(client, "a")
    await say(client, "a", b"bad", b"good")
    bad, good = await get(client)
    assert await done(client, good) == [Code.OK]
    answer = await change(client, bad, 3_600)
    assert answer.status.code == Code.OK
    bad.system_properties.receipt_handle = answer.receipt_handle
    await change(client, bad, suspend=True)
    for attempt in (1, 2):
        (bad,) = await get(client, wait_s=10)
        assert read([bad]) == [("a", b"bad", attempt)]
        await change(client, bad)
    assert await done(client, bad) == [Code.INVALID_RECEIPT_HANDLE]
    await say(client, "a", b"next")
    assert read(await get(client, wait_s=10)) == [("a", b"next", 1)]
    assert broker.parts.messages.store.max_offset("%DLQ%g", 0) == 1


async def test_members_share_and_one_that_leaves_hands_on(site: tuple[Broker, Asking]) -> None:
    broker, client = site
    async with asking(broker.address, "client@2") as other:
        for each in (client, other):
            await sync(each, "a", "b")
        await say(client, "a", b"1")
        await say(client, "b", b"2")
        both = [*read(await get(client)), *read(await get(other))]
        assert sorted(both) == [("a", b"1", 1), ("b", b"2", 1)]
        await say(client, "c", b"3")
        await sync(other, "c")
        goodbye = classes["NotifyClientTerminationRequest"](group={"name": "g"})
        await other.ask("NotifyClientTermination", goodbye)
        await sync(client, "c")
        assert read(await get(client)) == [("c", b"3", 1)]


async def test_an_exclusive_lite_topic_is_its_last_subscribers(
    site: tuple[Broker, Asking],
) -> None:
    """The one before is told, and a sync of all that it believes in does not bring it back."""
    broker, client = site
    lite_group(broker, lite_sub_model="Exclusive")
    settings = classes["Settings"](client_type=ClientType.LITE_PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add(topic={"name": "Chats"}, expression={"expression": "*"})
    stream, told = await client.talk(settings)
    limits = told.settings.subscription
    assert (limits.lite_subscription_quota, limits.max_lite_topic_size) == (2_000, 64)
    await sync(client, "a")
    async with asking(broker.address, "client@2") as other:
        await sync(other, "a")
        await client.until(lambda: len(client.answers[stream].messages) == 2)
        notice = classes["TelemetryCommand"].FromString(client.answers[stream].messages[1])
        assert notice.notify_unsubscribe_lite_command.lite_topic == "a"
        await sync(client, "a", action=LiteSubscriptionAction.COMPLETE_ADD)
        await say(client, "a", b"1", b"2")
        assert await get(client) == []
        assert len(await get(other)) == 2


async def test_a_wildcard_group_gets_all_of_its_parent(site: tuple[Broker, Asking]) -> None:
    broker, client = site
    lite_group(broker, "w", lite_sub_wildcard="true")
    await say(client, "a", b"before")
    refused = await sync(client, "a", group="w")
    assert (refused.code, "not supported" in refused.message) == (Code.INTERNAL_SERVER_ERROR, True)
    await sync(client, group="w", action=LiteSubscriptionAction.COMPLETE_ADD)
    assert read(await get(client, "w")) == [("a", b"before", 1)]
    await say(client, "b", b"after")
    assert read(await get(client, "w")) == [("b", b"after", 1)]


@pytest.mark.parametrize(
    ("option", "bodies"),
    [
        ({"policy": "MIN"}, [b"1", b"2", b"3"]),
        ({"policy": "MAX"}, []),
        ({"offset": 1}, [b"2", b"3"]),
        ({"tail_n": 2}, [b"2", b"3"]),
        ({"policy": "LAST"}, []),
    ],
)
async def test_a_subscription_begins_where_it_says(
    site: tuple[Broker, Asking], option: dict[str, Any], bodies: list[bytes]
) -> None:
    _, client = site
    await say(client, "a", b"1", b"2", b"3")
    await sync(client, "a")
    assert len(await done(client, *(await get(client)))) == 3
    await sync(client, "a", offset_option=option)
    assert [each.body for each in await get(client)] == bodies


async def test_who_may_not_is_told_why(site: tuple[Broker, Asking]) -> None:
    broker, client = site
    topics = broker.parts.tables.topics
    topics.update(TopicConfig("Other", 1, 1, attributes={"message.type": "LITE"}))
    sent = message("Chats", b"x", lite_topic="a.b", message_type=MessageType.LITE)
    assert (await send(client, sent)).status.code == Code.ILLEGAL_LITE_TOPIC
    assert (await sync(client, "a b")).code == Code.ILLEGAL_LITE_TOPIC
    sent = message("Chats", b"x")
    assert (await send(client, sent)).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    sent = message("T", b"x", lite_topic="a", message_type=MessageType.LITE)
    assert (await send(client, sent)).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    refused = (await client.ask_stream("ReceiveMessage", receiving("Other")))[0].status
    assert "lite.bind.topic is Chats" in refused.message
    broker.parts.node.config.max_lite_subscription_count = 1
    full = await sync(client, "a", "b")
    assert full.code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED


async def test_lite_topics_last_over_a_restart_and_go_with_their_age(tmp_path: Path) -> None:
    """Offsets, too; a new message of a lite topic that has gone is its first."""
    settings = {"liteTtlCheckInterval": 1_000, "minLiteTTl": 1_000}
    attributes = {"message.type": "LITE", "lite.topic.expiration": "1"}
    server = InProcess(settings, store=str(tmp_path / "store"))
    with server:

        async def make() -> None:
            tables = server.running.parts.tables
            tables.topics.update(TopicConfig("Chats", 4, 4, attributes=attributes))
            tables.groups.update(GroupConfig("g", extra={"attributes": BOUND}))

        server.call(make())
        async with asking(server.grpc) as client:
            await say(client, "a", b"1", b"2")
            await sync(client, "a")
            assert await done(client, (await get(client))[0]) == [Code.OK]
        server.restart()
        async with asking(server.grpc) as client:
            await sync(client, "a")
            assert read(await get(client)) == [("a", b"2", 1)]
            server.clock.advance(70)
            lite = server.running.parts.messages.lite
            until(lambda: not lite.index.count("Chats"), "the lite topic goes")
            await say(client, "a", b"anew")
            assert read(await get(client, wait_s=5)) == [("a", b"anew", 1)]


async def test_no_group_passes_over_what_replaces_lost_messages(tmp_path: Path) -> None:
    """A power cut took the log's end, and not the acknowledgements; one lite topic has lost all it had."""
    server = InProcess({}, store=str(tmp_path / "store"))
    with server:

        async def make() -> None:
            tables = server.running.parts.tables
            tables.topics.update(TopicConfig("Chats", 4, 4, attributes={"message.type": "LITE"}))
            tables.groups.update(GroupConfig("g", extra={"attributes": BOUND}))

        async def offset(name: str, to: int = -1) -> int:
            lite = server.running.parts.services.lite.service
            key = lite.topics.index.key("Chats", name)
            if to >= 0:
                lite.topics.offsets.set("g", key, to)
            return lite.topics.offsets.get("g", key)

        server.call(make())
        async with asking(server.grpc) as client:
            await say(client, "a", b"1", b"2")
        assert (server.call(offset("a", 7)), server.call(offset("lost", 3))) == (7, 3)
        server.call(_may_have_lost(server))
        assert (server.call(offset("a")), server.call(offset("lost"))) == (2, -1)
        async with asking(server.grpc) as client:
            await sync(client, "a", "lost")
            await say(client, "a", b"3")
            await say(client, "lost", b"anew")
            found = read(await get(client, wait_s=5))
            if len(found) < 2:
                found += read(await get(client, wait_s=5))
            assert sorted(found) == [("a", b"3", 1), ("lost", b"anew", 1)]


async def _may_have_lost(server: InProcess) -> None:
    server.running.parts.services.lite.cut_offsets()
