"""The balance of a group: scripted scenarios, each with what became of every message, as the test saw it."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.books.book import Books
from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import properties_to_text
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.popping import Popped, Popper
from tests.broker.serving import Peer, body_of, number, records, serving
from tests.kit.waiting import until_async

T, G = "T", "g"
Row = dict[str, Any]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path, group_guard_grace_time=0) as running:
        yield running


@pytest.fixture
async def asker(broker: Broker) -> AsyncIterator[Peer]:
    """Sends, asks for the balance, and is no member of any group."""
    async with await Peer.at(broker) as peer:
        yield peer


async def send(asker: Peer, *tags: str, topic: str = T, queue_id: int = 0) -> None:
    for tag in tags:
        more = {"i": properties_to_text({"TAGS": tag} if tag else {})}
        assert (await asker.produce(topic, b"x", queue_id=queue_id, more=more)).code == 0


async def commit(peer: Peer, offset: int, topic: str = T, queue_id: int = 0) -> None:
    ext = {"consumerGroup": G, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


async def ask(asker: Peer, **more: Any) -> Any:
    return body_of(await asker.ask(PocketRequestCode.GET_GROUP_BALANCE, {"group": G, **more}))


async def books(asker: Peer, topic: str = T) -> dict[str, int]:
    """The numbers of one topic that are not 0; they add up."""
    [row] = [each for each in (await ask(asker))["topics"] if each["topic"] == topic]
    assert row.pop("difference") == 0
    assert (row.pop("topic"), row.pop("group")) == (topic, G)
    assert row["stored"] == sum(count for name, count in row.items() if name != "stored")
    return {name: count for name, count in row.items() if count}


async def listed(asker: Peer, state: str) -> list[Row]:
    found: list[Row] = (await ask(asker, states=state))["rows"]
    return found


async def test_consumed_in_hand_and_waiting(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0, maxMsgNums=3))
        assert await books(asker) == {"stored": 4, "inHand": 3, "waiting": 1}
        await commit(member, 2)
        assert await books(asker) == {"stored": 4, "consumed": 2, "inHand": 1, "waiting": 1}
        [row] = await listed(asker, "inHand")
        assert (row["first"], row["last"], row["member"]) == (2, 2, "me")
    await asker.heartbeat("other", {T: "*"}, client_id="other")
    assert await books(asker) == {"stored": 4, "consumed": 2, "waiting": 2}


async def test_a_filter_that_all_members_share_loses_nothing(broker: Broker, asker: Peer) -> None:
    await send(asker, *"ABAB")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "A"}, client_id="me")
        records(await member.pull(G, T, 0))
        await commit(member, 4)
        assert await books(asker) == {"stored": 4, "consumed": 2, "filtered": 2}
        await commit(member, 3)
        assert await books(asker) == {"stored": 4, "consumed": 2, "filtered": 1, "waiting": 1}
        ranges = [(row["first"], row["last"]) for row in await listed(asker, "filtered")]
        assert ranges == [(1, 1)]


async def test_members_of_different_tags_lose_what_e3_says(broker: Broker, asker: Peer) -> None:
    """E3: B0 to B7 to four queues; A (tagA) has queues 0 and 1, B (tagB) the others and the last word."""
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "tagA"}, client_id="c1")
        await second.heartbeat(G, {T: "tagB"}, client_id="c2", sub_version=2)
        for number in range(8):
            await send(asker, "tagB", queue_id=number % 4)
        for queue_id in range(4):
            member = (first, second)[queue_id // 2]
            records(await member.pull(G, T, 0, queue_id=queue_id))
            await commit(member, 2, queue_id=queue_id)
        assert await books(asker) == {"stored": 8, "consumed": 4, "lost": 4}
        rows = await listed(asker, "lost")
    assert [(row["queueId"], row["first"], row["last"]) for row in rows] == [(0, 0, 1), (1, 0, 1)]
    assert {(row["cause"], row["member"]) for row in rows} == {("discarded by the member", "c1")}


async def test_a_held_pull_without_the_queue_changes_nothing(broker: Broker, asker: Peer) -> None:
    """A held pull of c1 ends after c2 has taken the queue over, and brings c1 what c2 has consumed."""
    await send(asker, "", queue_id=1)
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "tagA"}, client_id="c1")
        held = first.send_pull(G, T, 0, sys_flag=2, suspendTimeoutMillis=1_500)
        await first.heartbeat(G, {T: "tagA"}, client_id="c1")
        await second.heartbeat(G, {T: "tagB"}, client_id="c2", sub_version=2)
        await send(asker, "tagB", "tagB")
        assert len(records(await second.pull(G, T, 0))) == 2
        await commit(second, 2)
        assert len(records(await first.answer(held))) == 2
        found = await books(asker)
        assert (found["consumed"], found.get("lost", 0)) == (2, 0)


@pytest.mark.parametrize("order", ["c1 c2", "c2 c1"])
async def test_of_two_held_pulls_that_of_the_holder_counts(
    broker: Broker, asker: Peer, order: str
) -> None:
    """c1 gave its queue to c2 while its pull was held: a message wakes both pulls, and c1 ignores it."""
    await send(asker, "", queue_id=1)
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        members = {"c1": (first, "tagA", 1), "c2": (second, "tagB", 2)}
        for name, (member, tag, version) in members.items():
            await member.heartbeat(G, {T: tag}, client_id=name, sub_version=version)
        held = {}
        for name in order.split():
            member, tag, version = members[name]
            held[name] = member.send_pull(G, T, 0, sys_flag=2, suspendTimeoutMillis=60_000)
            # Its answer says that the pull before it is held.
            await member.heartbeat(G, {T: tag}, client_id=name, sub_version=version)
        await send(asker, "tagB")
        for name, opaque in held.items():
            assert len(records(await members[name][0].answer(opaque))) == 1
        second.send_pull(G, T, 1, sys_flag=2, suspendTimeoutMillis=60_000)
        await commit(second, 1)
        assert (await books(asker))["consumed"] == 1
        assert [row["member"] for row in await listed(asker, "consumed")] == ["c2"]
        # A pull of the first one from where both have been: the holder has gone on, so it says nothing.
        first.send_pull(G, T, 1, sys_flag=2, suspendTimeoutMillis=60_000)
        await first.heartbeat(G, {T: "tagA"}, client_id="c1")
        assert [row["member"] for row in await listed(asker, "consumed")] == ["c2"]


async def test_what_the_broker_filters_for_another_member_is_lost(
    broker: Broker, asker: Peer
) -> None:
    """E2b: of A and B messages in turns, the member that asks for A gets none in its own queue."""
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "A"}, client_id="c1")
        await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2)
        await send(asker, *"ABABC")
        records(await second.pull(G, T, 0))
        await commit(second, 5)
        assert await books(asker) == {"stored": 5, "consumed": 2, "lost": 2, "filtered": 1}
        rows = await listed(asker, "lost")
    assert [(row["first"], row["last"]) for row in rows] == [(0, 0), (2, 2)]
    assert {row["cause"] for row in rows} == {"filtered for another member"}


async def test_queues_of_a_member_without_the_topic_are_lost(broker: Broker, asker: Peer) -> None:
    """E2a: c1 subscribes to another topic and is allocated queues 0 and 1."""
    for queue_id in range(4):
        await send(asker, "", "", queue_id=queue_id)
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {"Other": "*"}, client_id="c1")
        await second.heartbeat(G, {T: "*"}, client_id="c2", sub_version=2)
        for queue_id in (2, 3):
            records(await second.pull(G, T, 0, queue_id=queue_id))
            await commit(second, 2, queue_id=queue_id)
        assert await books(asker) == {"stored": 8, "consumed": 4, "lost": 4}
        causes = {row["cause"] for row in await listed(asker, "lost")}
        assert causes == {"no member reads the queue"}
    await asker.heartbeat("other", {T: "*"})
    assert await books(asker) == {"stored": 8, "consumed": 4, "waiting": 4}


async def test_a_member_that_restarts_still_wants_its_messages(tmp_path: Path) -> None:
    """c2 is away while tag B passes; so it is when the broker starts again before c2."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        async with await Peer.at(broker) as first:
            await first.heartbeat(G, {T: "A"}, client_id="c1")
            async with await Peer.at(broker) as second:
                await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2)
            await first.heartbeat(G, {T: "A"}, client_id="c1", sub_version=3)
            await send(asker, *"AB")
            records(await first.pull(G, T, 0))
            await commit(first, 2)
            assert await books(asker) == {"stored": 2, "consumed": 1, "lost": 1}
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        await send(asker, *"AB")
        async with await Peer.at(broker) as first:
            await first.heartbeat(G, {T: "A"}, client_id="c1")
            records(await first.pull(G, T, 2))
            await commit(first, 4)
            assert await books(asker) == {"stored": 4, "consumed": 2, "lost": 2}


async def test_an_isolated_group_loses_nothing(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, group_mode="isolate") as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as first,
        await Peer.at(broker) as second,
    ):
        await first.heartbeat(G, {T: "A"}, client_id="c1")
        await second.heartbeat(G, {T: "B"}, client_id="c2")
        await send(asker, *"ABCAB")
        for member in (first, second):
            records(await member.pull(G, T, 0))
            await commit(member, 5)
        assert await books(asker) == {"stored": 5, "consumed": 4, "filtered": 1}


async def test_resets_say_who_skipped_what(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAAAAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0, maxMsgNums=3))
        await commit(member, 2)
        await commit(asker, 5)
        assert await books(asker) == {"stored": 6, "consumed": 2, "skipped": 3, "waiting": 1}
        [row] = await listed(asker, "skipped")
        assert (row["first"], row["last"]) == (2, 4)
        assert "which is not a member" in row["cause"]
        await commit(asker, 1)
        assert await books(asker) == {"stored": 6, "consumed": 1, "waiting": 5}
        records(await member.pull(G, T, 1))
        await commit(member, 6)
        assert await books(asker) == {"stored": 6, "consumed": 6}


async def test_the_group_begins_where_it_first_read(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 3))
        await commit(member, 4)
        assert await books(asker) == {"stored": 1, "consumed": 1}


async def test_sent_back_retried_consumed_and_dead(tmp_path: Path) -> None:
    store = {"message_delay_level": "1s " * 18}
    retry = f"%RETRY%{G}"
    async with (
        serving(tmp_path, store=store) as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as member,
    ):
        await send(asker, *"AAAA")
        await member.heartbeat(G, {T: "*", retry: "*"}, client_id="me")
        got = records(await member.pull(G, T, 0))
        for record, level in ((got[1], 0), (got[2], -1)):
            ext = {"offset": record.position, "group": G, "delayLevel": level}
            assert (await member.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0
        await commit(member, 4)
        assert await books(asker) == {"stored": 4, "consumed": 2, "retry": 1, "dead": 1}
        [copy] = records(await member.pull(G, retry, 0, sys_flag=2))
        assert await books(asker) == {"stored": 4, "consumed": 2, "retry": 1, "dead": 1}
        # It fails once more, and then does not.
        ext = {"offset": copy.position, "group": G, "delayLevel": 0}
        assert (await member.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0
        await commit(member, 1, retry)
        records(await member.pull(G, retry, 1, sys_flag=2))
        assert await books(asker) == {"stored": 4, "consumed": 2, "retry": 1, "dead": 1}
        await commit(member, 2, retry)
        assert await books(asker) == {"stored": 4, "consumed": 3, "dead": 1}
        [row] = await listed(asker, "dead")
        assert (row["topic"], row["first"], row["last"]) == (T, 2, 2)
        assert "gave up" in row["cause"]


async def test_what_a_topic_keeps_no_more_is_expired(broker: Broker, asker: Peer) -> None:
    """Its members continue at its beginning, and by its id no message is found."""
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        await send(asker, *"AA")
        records(await member.pull(G, T, 0, maxMsgNums=1))
        await commit(member, 1)
        await send(asker, *"AAAAAAAA")
        made = {"topic": T, "defaultTopic": T, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        made |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        for change, text in (("reserve.count=0", "above 0"), ("reserve.time=2w", "is not hours")):
            refused = await asker.ask(17, {**made, "attributes": f"+{change}"})
            assert (refused.code, text in (refused.remark or "")) == (1, True)
        assert (await asker.ask(17, {**made, "attributes": "+reserve.count=3"})).code == 0

        async def moved() -> bool:
            low = await asker.ask(RequestCode.GET_MIN_OFFSET, {"topic": T, "queueId": 0})
            return number(low, "offset") == 7

        await until_async(moved)
        assert await books(asker) == {"stored": 10, "consumed": 1, "expired": 6, "waiting": 3}
        answer = await member.pull(G, T, 1)
        assert (answer.code, number(answer, "nextBeginOffset")) == (21, 7)
        found = await asker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0, "topic": T})
        assert found.code != 0


async def test_what_retention_deleted_first_is_expired(tmp_path: Path) -> None:
    small = {"mapped_file_size_commit_log": 65_536, "file_reserved_time": 0}
    async with serving(tmp_path, store=small) as broker, await Peer.at(broker) as asker:
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            await send(asker, "A", "A")
            records(await member.pull(G, T, 0, maxMsgNums=1))
            await commit(member, 1)
            for _ in range(8):
                await asker.produce(T, b"x" * 20_000)
            store = broker.parts.messages.store
            store.delete_expired_files(manual=True)
            low = store.min_offset(T, 0)
            assert low > 2
            waiting = {"stored": 10, "consumed": 1, "expired": low - 1}
            assert await books(asker) == {**waiting, "waiting": 10 - low}
            moved = await member.pull(G, T, 1)
            assert moved.code == 21
            records(await member.pull(G, T, low))
            await commit(member, 10)
            # The pull is answered with a part of them.
            found = await books(asker)
            assert found.pop("consumed") + found.pop("unknown", 0) == 11 - low
            assert found == {"stored": 10, "expired": low - 1}


async def test_a_topic_that_was_made_again_begins_anew(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0))
        await commit(member, 3)
        assert (await asker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": T})).code == 0
        await send(asker, *"AA")
        assert await books(asker) == {"stored": 2, "waiting": 2}


async def test_what_no_record_says_is_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        await send(asker, *"AAAA")
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            records(await member.pull(G, T, 0, maxMsgNums=3))
            await commit(member, 3)
    for file in (tmp_path / "deliveries").iterdir():
        file.unlink()
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            records(await member.pull(G, T, 3))
            await commit(member, 4)
            assert await books(asker) == {"stored": 4, "unknown": 3, "consumed": 1}


async def test_questions_that_cannot_be_answered(broker: Broker, asker: Peer) -> None:
    code = PocketRequestCode.GET_GROUP_BALANCE
    answer = await asker.ask(code, {"group": "unknown"})
    assert (answer.code, "does not exist" in str(answer.remark)) == (26, True)
    await asker.heartbeat(G, {T: "*"})
    answer = await asker.ask(code, {"group": G, "states": "wrong"})
    assert (answer.code, "states are: consumed" in str(answer.remark)) == (1, True)


async def test_a_later_question_reads_only_what_was_added(
    broker: Broker, asker: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: Counter[str] = Counter()
    enter = Books.span
    monkeypatch.setattr(Books, "span", lambda *a: (entered.update("x"), enter(*a)))
    await send(asker, *"AAAA")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        for offset in range(3):
            records(await member.pull(G, T, offset, maxMsgNums=1))
            await commit(member, offset + 1)
            assert (await books(asker))["consumed"] == offset + 1
        await books(asker)
    assert entered.total() == 3


async def test_popped_acknowledged_and_delivered_again(tmp_path: Path) -> None:
    """What a member does not acknowledge is copied to the pop retry topic, and counts by its copy."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await send(peer, *"AAAB")
        member = Popper(peer, broker.parts.node.clock.now_ms)
        await peer.heartbeat(G, {T: "A"}, client_id="me")
        got = await member.pop(queueId=0, invisibleTime=1_000, exp="A", expType="TAG")
        assert [each.offset for each in got] == [0, 1, 2]
        assert await books(peer) == {"stored": 4, "inHand": 3, "filtered": 1}
        await member.ack(got[0])
        assert await books(peer) == {"stored": 4, "consumed": 1, "inHand": 2, "filtered": 1}
        again: list[Popped] = []
        while len(again) < 2:
            again += await member.pop(pollTime=5_000, exp="A", expType="TAG")
        waiting = {"stored": 4, "consumed": 1, "retry": 2, "filtered": 1}
        assert await books(peer) == waiting
        await member.ack(again[0])
        assert await books(peer) == {**waiting, "consumed": 2, "retry": 1}
        await member.ack(again[1])
        assert await books(peer) == {"stored": 4, "consumed": 3, "filtered": 1}


async def test_members_that_pop_different_tags_lose_the_others(broker: Broker, asker: Peer) -> None:
    await send(asker, *"ABAB")
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "A"}, client_id="c1")
        await second.heartbeat(G, {T: "B"}, client_id="c2", sub_version=2)
        member = Popper(first, broker.parts.node.clock.now_ms)
        for each in await member.pop(queueId=0, exp="A", expType="TAG"):
            await member.ack(each)
        assert await books(asker) == {"stored": 4, "consumed": 2, "lost": 2}


async def test_one_copy_too_many_makes_a_dead_letter(broker: Broker, asker: Peer) -> None:
    """As an orderly consumer of Java does: it sends to the retry topic itself, naming its own id."""
    key = "0123456789ABCDEF0123456789ABCDEF"
    more = {"i": properties_to_text({"UNIQ_KEY": key})}
    await asker.produce(T, b"x", more=more)
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0))
        copy = {"UNIQ_KEY": key, "ORIGIN_MESSAGE_ID": key, "RETRY_TOPIC": T}
        fields = {"i": properties_to_text(copy), "j": 16, "l": 16}
        assert (await member.produce(f"%RETRY%{G}", b"x", more=fields)).code == 0
        await commit(member, 1)
        assert await books(asker) == {"stored": 1, "dead": 1}
