"""One search over everything, messages by content, the live view of a topic, dead letters by reason."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.console.api import search
from tests.console.console_peer import Site, User, site
from tests.kit.waiting import until_async


@asynccontextmanager
async def orders(folder: Path) -> AsyncIterator[tuple[Site, list[str]]]:
    """A topic Orders with messages 0 to 5: tags odd and even, keys order-N, a region, a body; their ids."""
    async with site(folder) as running:
        await running.user.do("PUT", "/topics/Orders", {"readQueues": 2, "writeQueues": 2})
        async with Producer("P", name_server=running.name_server) as producer:
            ids = []
            for n in range(6):
                properties = {"region": ["eu", "us"][n // 3]}
                body = f"Order {n} of Anna".encode()
                tag = ["even", "odd"][n % 2]
                message = Message(
                    "Orders", body, tags=tag, keys=f"order-{n}", properties=properties
                )
                ids.append((await producer.send(message)).msg_id)
        yield running, ids


async def numbers(user: User, **query: Any) -> list[int]:
    """Which of the messages a search finds, over all its pieces; those of one ms in any order."""
    found: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        rest = {"cursor": cursor} if cursor else {}
        piece = await user.read("/messages/search", topic="Orders", **query, **rest)
        found += [int(each["keys"].removeprefix("order-")) for each in piece["items"]]
        cursor = piece["cursor"]
    return sorted(found, reverse=True)


async def test_messages_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    async with orders(tmp_path) as (running, _):
        user = running.user
        for query, wanted in (
            ({}, [5, 4, 3, 2, 1, 0]),
            ({"tag": "odd"}, [5, 3, 1]),
            ({"key": "order-4"}, [4]),
            ({"key": "order-"}, [5, 4, 3, 2, 1, 0]),
            ({"property": "region=us", "tag": "even"}, [4]),
            ({"property": "region"}, [5, 4, 3, 2, 1, 0]),
            ({"property": "region=asia"}, []),
            ({"text": "ORDER 2"}, [2]),
            ({"text": "anna", "property": "region=eu"}, [2, 1, 0]),
            ({"end": 1_000}, []),
        ):
            assert await numbers(user, **query) == wanted, query


async def test_a_search_is_bounded_and_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece reads no more than its bound: who stops asking has stopped the search."""
    monkeypatch.setattr(search, "SCAN_MAX", 2)
    monkeypatch.setattr(search, "_PAGE", 2)
    async with orders(tmp_path) as (running, _):
        first = await running.user.read("/messages/search", topic="Orders", text="order 0", size=1)
        assert (first["items"], first["scanned"], first["left"]) == ([], 2, 4)
        assert first["reached"] > 0
        assert await numbers(running.user, text="order 0", size=1) == [0]


async def test_one_box_finds_topics_groups_members_ids_and_keys(tmp_path: Path) -> None:
    async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        pass

    async with orders(tmp_path) as (running, ids):
        user = running.user
        reader = PushConsumer("order-readers", listener=listener, name_server=running.name_server)
        reader.subscribe("Orders", "*")
        async with reader:

            async def names() -> Any:
                found = await user.read("/search", q="ORDER")
                return found if found["clients"] or found["groups"] else None

            found = await until_async(names)
            assert found["topics"] == ["Orders", "%RETRY%order-readers"]
            assert found["groups"] == ["order-readers"]
            client = reader.client_id

            async def member() -> Any:
                return (await user.read("/search", q=client[-8:]))["clients"]

            assert await until_async(member) == [{"clientId": client, "group": "order-readers"}]
        for text, wanted in ((ids[3], "order-3"), ("order-2", "order-2")):
            found = await user.read("/search", q=text)
            assert ([each["keys"] for each in found["messages"]], found["whole"]) == (
                [wanted],
                True,
            )
            place = found["messages"][0]["offsetMsgId"]
            [again] = (await user.read("/search", q=place))["messages"]
            assert again["keys"] == wanted
        nothing = await user.read("/search", q="no such thing")
        assert not any(nothing[each] for each in ("topics", "groups", "clients", "messages"))


async def test_a_topic_is_watched_without_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest first, then what arrives; of a flood the newest, and how many were skipped."""
    monkeypatch.setattr(search, "TAIL_MAX", 3)
    async with orders(tmp_path) as (running, _):
        user = running.user
        first = await user.read("/topics/Orders/tail", tag="even")
        assert [each["keys"] for each in first["items"]] == ["order-0", "order-2", "order-4"]
        cursor = first["cursor"]
        assert (await user.read("/topics/Orders/tail", cursor=cursor))["items"] == []
        async with Producer("P", name_server=running.name_server) as producer:
            [queue, _] = await producer.queues("Orders")
            for n in range(5):
                await producer.send(Message("Orders", b"late %d" % n), queue=queue)
        late = await user.read("/topics/Orders/tail", cursor=cursor)
        assert ([each["body"]["text"] for each in late["items"]], late["skipped"]) == (
            ["late 2", "late 3", "late 4"],
            2,
        )
        assert (await user.get("/topics/Orders/tail", cursor="x")).status == 400
        assert "TOOLS" not in await running.admin_topics()


async def test_dead_letters_are_grouped_by_their_reason(tmp_path: Path) -> None:
    async def failing(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    async with orders(tmp_path) as (running, _):
        reader = PushConsumer(
            "G",
            listener=failing,
            name_server=running.name_server,
            max_reconsume_times=0,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        reader.subscribe("Orders", "*")
        async with reader:

            async def all_dead() -> Any:
                reply = await running.user.get("/dlq/G/reasons")
                found = reply.json
                return found if reply.status == 200 and found["looked"] == 6 else None

            found = await until_async(all_dead)
        assert [(each["topic"], each["tag"], each["count"]) for each in found["items"]] in (
            [("Orders", "odd", 3), ("Orders", "even", 3)],
            [("Orders", "even", 3), ("Orders", "odd", 3)],
        )
        [reason] = {each["reason"] for each in found["items"]}
        assert reason
        assert len({each for row in found["items"] for each in row["ids"]}) == found["total"] == 6
