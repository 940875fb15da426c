"""Lost messages are given back to their group alone, once, to members that want them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import get_property
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.store import MessageStore
from tests.broker.popping import Popper
from tests.broker.serving import Peer, batch, body_of, records, serving
from tests.broker.test_balance import G, T, books, commit, listed, send

RETRY = f"%RETRY%{G}"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path, isolate_keep_time=0) as running:
        yield running


@pytest.fixture
async def asker(broker: Broker) -> AsyncIterator[Peer]:
    async with await Peer.at(broker) as peer:
        yield peer


async def redeliver(asker: Peer, count: int = 100, state: str = "lost", **more: Any) -> Any:
    ext = {"group": G, "state": state, "count": count, **more}
    told = body_of(await asker.ask(PocketRequestCode.REDELIVER, ext))
    del told["after"]
    return told


async def lose(broker: Broker, asker: Peer, member: Peer, *tags: str) -> None:
    """c1 (A) reads while c2 (B) has the last word: A messages pass, and c2 leaves."""
    await member.heartbeat(G, {T: "A", RETRY: "*"}, client_id="c1")
    async with await Peer.at(broker) as second:
        await second.heartbeat(G, {T: "B", RETRY: "*"}, client_id="c2", sub_version=2)
        await send(asker, *tags)
        await member.pull(G, T, 0)
        await commit(member, len(tags))
    await member.heartbeat(G, {T: "A", RETRY: "*"}, client_id="c1", sub_version=3)


def about(count: int, left: int = 0, unwanted: int = 0) -> dict[str, int]:
    return {"given": count, "left": left, "unwanted": unwanted, "deleted": 0}


async def test_it_refuses_while_members_differ(broker: Broker, asker: Peer) -> None:
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "A"}, client_id="c1")
        await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2)
        ext = {"group": G, "state": "lost", "count": 1}
        answer = await asker.ask(PocketRequestCode.REDELIVER, ext)
    assert answer.code == 1
    for words in ("subscribe differently", f"pocketmq group mode {G} isolate"):
        assert words in str(answer.remark)


async def test_lost_messages_come_back_once_and_count_as_redelivered(
    broker: Broker, asker: Peer
) -> None:
    async with await Peer.at(broker) as member:
        await lose(broker, asker, member, *"AAAB")
        assert await books(asker) == {"stored": 4, "lost": 4}
        assert await redeliver(asker, 0) == about(0, left=3, unwanted=1)
        # It looks no further than it gives.
        assert await redeliver(asker, 2) == about(2, left=2)
        assert await redeliver(asker) == about(1, unwanted=1)
        assert await redeliver(asker) == about(0, unwanted=1)
        assert await books(asker) == {"stored": 4, "lost": 1, "retry": 3}
        copies = records(await member.pull(G, RETRY, 0))
        assert [get_property(each.properties, b"RETRY_TOPIC") for each in copies] == [b"T"] * 3
        marks = [get_property(each.properties, b"REDELIVERED") for each in copies]
        assert marks == [b"missed"] * 3
        await commit(member, 2, RETRY)
        assert await books(asker) == {"stored": 4, "lost": 1, "retry": 1, "redelivered": 2}
        await commit(member, 3, RETRY)
        assert await books(asker) == {"stored": 4, "lost": 1, "redelivered": 3}
        assert [(row["first"], row["last"]) for row in await listed(asker, "lost")] == [(3, 3)]


async def test_two_that_give_a_long_list_give_each_message_once(
    broker: Broker, asker: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all others have their turn in between."""
    turn, looked_at, look = 0, Counter[int](), MessageStore.record_at

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    def counted(self: MessageStore, position: int, size: int = 1) -> memoryview | None:
        looked_at[turn] += 1
        return look(self, position, size)

    count = 1_500
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*", RETRY: "*"}, client_id="me")
        await send(asker, "A")
        records(await member.pull(G, T, 0))
        how: dict[str, Any] = {"code": RequestCode.SEND_BATCH_MESSAGE, "more": {"m": "true"}}
        assert (await asker.produce(T, batch(*[(b"x", b"")] * count), **how)).code == 0
        await commit(member, 1)
        await commit(asker, 1 + count)
        monkeypatch.setattr(MessageStore, "record_at", counted)
        next_turn()
        told = await asyncio.gather(
            *(redeliver(each, 10_000, "skipped") for each in (asker, member))
        )
        assert sum(each["given"] for each in told) == count
        assert broker.parts.messages.store.max_offset(RETRY, 0) == count
        assert count <= looked_at.total()
        assert max(looked_at.values()) < 600


async def test_a_group_that_does_not_exist_is_not_made(broker: Broker, asker: Peer) -> None:
    ext = {"group": "mistyped", "state": "lost", "count": 0}
    assert (await asker.ask(PocketRequestCode.REDELIVER, ext)).code == 26
    assert broker.parts.tables.groups.get("mistyped") is None


async def test_no_message_is_given_twice_after_a_kill(tmp_path: Path) -> None:
    """The record of what was given is lost; the copies are not."""
    async with (
        serving(tmp_path, isolate_keep_time=0) as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as member,
    ):
        await lose(broker, asker, member, *"AAAA")
        assert await redeliver(asker, 0) == about(0, left=4)
        current = tmp_path / "deliveries" / "current"
        size = current.stat().st_size
        assert await redeliver(asker, 3) == about(3, left=1)
        kept = current.read_bytes()[:size]
    (tmp_path / "deliveries" / "current").write_bytes(kept)
    async with (
        serving(tmp_path, isolate_keep_time=0) as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as member,
    ):
        await member.heartbeat(G, {T: "A", RETRY: "*"}, client_id="c1")
        assert await redeliver(asker) == about(1)
        assert broker.parts.messages.store.max_offset(RETRY, 0) == 4
        assert await books(asker) == {"stored": 4, "retry": 4}


async def test_a_redelivered_message_that_fails_and_dies_is_dead(
    broker: Broker, asker: Peer
) -> None:
    async with await Peer.at(broker) as member:
        await lose(broker, asker, member, *"AA")
        assert await redeliver(asker) == about(2)
        copies = records(await member.pull(G, RETRY, 0))
        ext = {"offset": copies[0].position, "group": G, "delayLevel": -1}
        assert (await member.ask(36, ext)).code == 0
        await commit(member, 2, RETRY)
        assert await books(asker) == {"stored": 2, "dead": 1, "redelivered": 1}


async def test_skipped_messages_by_choice(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*", RETRY: "*"}, client_id="me")
        await commit(asker, 2)
        records(await member.pull(G, T, 2))
        await commit(member, 3)
        assert await books(asker) == {"stored": 3, "skipped": 2, "consumed": 1}
        assert await redeliver(asker) == about(0)
        assert await redeliver(asker, state="skipped") == about(2)
        records(await member.pull(G, RETRY, 0))
        await commit(member, 2, RETRY)
        assert await books(asker) == {"stored": 3, "redelivered": 2, "consumed": 1}


@pytest.mark.parametrize("tags", ["AABB", "BB", "AA"])
async def test_isolate_redelivers_each_message_to_a_subscriber(
    broker: Broker, asker: Peer, tags: str
) -> None:
    """Also if the member that comes to the retry topic last finds nothing there for it."""
    count = len(tags)
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await lose(broker, asker, first, *tags)
        config = {"groupName": G, "attributes": {"+group.mode": "isolate"}}
        assert (await asker.ask(200, {}, json.dumps(config).encode())).code == 0
        await second.heartbeat(G, {T: "B", RETRY: "*"}, client_id="c2", sub_version=9)
        await first.heartbeat(G, {T: "A", RETRY: "*"}, client_id="c1", sub_version=9)
        assert await redeliver(asker) == about(count)
        for member, tag in ((first, "A"), (second, "B")):
            answer = await member.pull(G, RETRY, 0)
            got = [] if answer.code else records(answer)
            wanted = [tag.encode()] * tags.count(tag)
            assert [get_property(each.properties, b"TAGS") for each in got] == wanted
            await commit(member, count, RETRY)
        assert await books(asker) == {"stored": count, "redelivered": count}


async def test_members_that_pop_get_them_from_their_own_retry_topic(
    broker: Broker, asker: Peer
) -> None:
    how = {"consume_type": "CONSUME_POP"}
    async with await Peer.at(broker) as first:
        await first.heartbeat(G, {T: "A"}, client_id="c1", **how)
        member = Popper(first, broker.parts.node.clock.now_ms)
        async with await Peer.at(broker) as second:
            await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2, **how)
            await send(asker, *"ABA")
            other = Popper(second, broker.parts.node.clock.now_ms)
            for each in await other.pop(queueId=0, exp="B", expType="TAG"):
                await other.ack(each)
        await first.heartbeat(G, {T: "A"}, client_id="c1", sub_version=3, **how)
        assert await books(asker) == {"stored": 3, "consumed": 1, "lost": 2}
        assert await redeliver(asker) == about(2)
        for each in await member.pop(exp="A", expType="TAG"):
            assert each.topic == f"%RETRY%{G}_{T}"
            await member.ack(each)
        assert await books(asker) == {"stored": 3, "consumed": 1, "redelivered": 2}


async def test_a_copy_that_fails_once_counts_by_its_retry(
    tmp_path: Path,
) -> None:
    """Also after a start, at which the copies are looked at."""
    store = {"message_delay_level": "1s " * 18}
    async with (
        serving(tmp_path, store=store, isolate_keep_time=0) as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as member,
    ):
        await lose(broker, asker, member, *"AA")
        assert await redeliver(asker) == about(2)
        copies = records(await member.pull(G, RETRY, 0))
        ext = {"offset": copies[0].position, "group": G, "delayLevel": 0}
        assert (await member.ask(36, ext)).code == 0
        await commit(member, 2, RETRY)
        assert await books(asker) == {"stored": 2, "retry": 1, "redelivered": 1}
        records(await member.pull(G, RETRY, 2, sys_flag=2))
        await commit(member, 3, RETRY)
        assert await books(asker) == {"stored": 2, "redelivered": 2}
    async with serving(tmp_path, store=store) as broker, await Peer.at(broker) as asker:
        assert await redeliver(asker) == about(0)
        assert await books(asker) == {"stored": 2, "redelivered": 2}


async def test_a_copy_that_is_lost_is_given_again_once(broker: Broker, asker: Peer) -> None:
    async with await Peer.at(broker) as member:
        await lose(broker, asker, member, *"AAA")
        assert await redeliver(asker) == about(3)
        # An administrator moves the group past the copies.
        await commit(asker, 2, RETRY)
        assert await books(asker) == {"stored": 3, "retry": 1, "skipped": 2}
        assert await redeliver(asker, state="skipped") == about(2)
        assert await books(asker) == {"stored": 3, "retry": 3}
        assert await redeliver(asker, state="skipped") == about(0)
        assert len(records(await member.pull(G, RETRY, 2))) == 3
        await commit(member, 5, RETRY)
        assert await books(asker) == {"stored": 3, "redelivered": 3}
