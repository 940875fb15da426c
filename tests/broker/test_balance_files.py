"""The balance of a group from the files of its store alone, beside what a running broker said of it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from pocketmq.books.from_files import ALL_ASK, SOME_ASK, StoredBooks, open_ledger
from pocketmq.files.local import LocalFiles
from pocketmq.model.balance import State
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument
from tests.broker.popping import Popper
from tests.broker.serving import Peer, records, serving
from tests.broker.test_balance import G, T, books, commit, listed, send
from tests.store.bulk_stores import manifest, unpack

RETRY = f"%RETRY%{G}"


def of_files(folder: Path, *subscriptions: str, group: str = G) -> StoredBooks:
    return open_ledger(LocalFiles(), str(folder)).of_group(group, subscriptions)


def numbers(found: StoredBooks, topic: str = T) -> dict[str, int]:
    """As `books` of a broker."""
    [balance] = [each for each in found.balances() if each.topic == topic]
    assert balance.difference == 0
    counts = {state.value: count for state, count in balance.counts.items()}
    return {"stored": balance.stored, **counts}


async def lose_some(folder: Path) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """E2b, a message that is sent back and one that is dead; returns what the broker says of it."""
    async with serving(folder) as broker, await Peer.at(broker) as asker:
        async with await Peer.at(broker) as first, await Peer.at(broker) as second:
            await first.heartbeat(G, {T: "A", RETRY: "*"}, client_id="c1")
            await second.heartbeat(G, {T: "B", RETRY: "*"}, client_id="c2", sub_version=2)
            await send(asker, *"ABABCBB")
            got = records(await second.pull(G, T, 0))
            for record, level in ((got[0], 3), (got[1], -1)):
                ext = {"offset": record.position, "group": G, "delayLevel": level}
                assert (await second.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0
            await commit(second, 6)
        await asker.heartbeat("other", {T: "*"}, client_id="other")
        lost = [(row["first"], row["last"]) for row in await listed(asker, "lost")]
        return await books(asker), lost


async def test_files_with_a_record_say_what_the_broker_says(tmp_path: Path) -> None:
    told, lost = await lose_some(tmp_path)
    found = of_files(tmp_path)
    assert found.is_recorded
    assert numbers(found) == told
    assert told == {
        "stored": 7,
        "consumed": 1,
        "filtered": 1,
        "lost": 2,
        "retry": 1,
        "dead": 1,
        "waiting": 1,
    }
    rows = found.listed(frozenset({State.LOST}))
    assert [(row.first, row.last) for row in rows] == lost == [(0, 0), (2, 2)]
    assert {(row.broker, row.cause, row.member) for row in rows} == {
        ("b", "filtered for another member", "c2")
    }


async def test_without_a_record_only_what_files_tell_is_said(tmp_path: Path) -> None:
    await lose_some(tmp_path)
    shutil.rmtree(tmp_path / "deliveries")
    sure = {"stored": 7, "retry": 1, "dead": 1, "waiting": 1}
    assert numbers(of_files(tmp_path)) == {**sure, "unknown": 4}
    found = of_files(tmp_path, "TAG A", "TAG B")
    assert not found.is_recorded
    assert numbers(found) == {**sure, "filtered": 1, "unknown": 3}
    rows = found.listed(frozenset({State.UNKNOWN}))
    # The sent back message is at 1, the dead one at 3.
    assert [(row.first, row.last, row.cause) for row in rows] == [
        *((0, 0, SOME_ASK), (2, 2, SOME_ASK), (5, 5, SOME_ASK)),
    ]
    alike = of_files(tmp_path, "TAG A || B").listed(frozenset({State.UNKNOWN}))
    assert {row.cause for row in alike} == {ALL_ASK}
    of_sql = of_files(tmp_path, "SQL92 TAGS = 'A'")
    assert numbers(of_sql) == {**sure, "filtered": 2, "unknown": 2}


async def test_popped_messages_are_in_hand_until_acknowledged(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        await send(asker, *"AAAA")
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            popper = Popper(member, broker.parts.node.clock.now_ms)
            got = await popper.pop(maxMsgNums=3)
            await popper.ack(got[1])
        told = await books(asker)
    assert told == {"stored": 4, "consumed": 1, "inHand": 2, "waiting": 1}
    assert numbers(of_files(tmp_path)) == told


@pytest.mark.parametrize("name", ["v497-main.clean", "v497-main.crash", "v550-main.clean"])
def test_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    """What its own broker serves says which messages are dead."""
    root = unpack(name, tmp_path)
    messages = [each for each in manifest(name)["messages"] if each["topic"] == "GdRetry"]
    dead = {
        each["properties"]["ORIGIN_MESSAGE_ID"]
        for each in manifest(name)["messages"]
        if each["topic"] == "%DLQ%GdGidRetry"
    }
    places = {(m["queueId"], m["queueOffset"]) for m in messages if m["offsetMsgId"] in dead}
    found = of_files(root, group="GdGidRetry")
    assert numbers(found, "GdRetry") == {"stored": 6, "dead": len(places), "unknown": 4}
    listed_ = found.listed(frozenset({State.DEAD}))
    assert {(row.queue_id, row.first) for row in listed_} == places
    tags = Counter(each.get("tags") for each in messages)
    for tag, count in tags.items():
        if tag is not None:
            filtered = numbers(of_files(root, f"TAG {tag}", group="GdGidRetry"), "GdRetry")
            assert filtered.get("unknown", 0) + filtered.get("dead", 0) >= count
    with pytest.raises(IllegalArgument, match="groups there"):
        of_files(root, group="Nope")
