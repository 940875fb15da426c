"""Message tracks: scripted scenarios, each with the one true verdict."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.books.rows import EventKind
from pocketmq.broker.broker import Broker
from pocketmq.broker.delivery.record import DeliveryRecord
from pocketmq.model.message_codec import parse_offset_msg_id, properties_to_text
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.serving import Peer, body_of, records, serving
from tests.kit.waiting import until_async

T, G = "T", "g"
COMMIT = 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path, group_guard_grace_time=0) as running:
        yield running


@pytest.fixture
async def asker(broker: Broker) -> AsyncIterator[Peer]:
    """Sends, asks for tracks, and is no member of any group."""
    async with await Peer.at(broker) as peer:
        yield peer


class Sent:
    """One stored message, and its track in a group."""

    def __init__(self, asker: Peer, ext: dict[str, str], key: str) -> None:
        self.asker, self.key = asker, key
        self.msg_id, self.offset = ext["msgId"], int(ext["queueOffset"])
        self.queue_id = int(ext["queueId"])

    async def track(self, group: str = G) -> dict[str, Any]:
        return await track(self.asker, msgId=self.msg_id, group=group)


async def track(asker: Peer, **ext: Any) -> dict[str, Any]:
    answer = await asker.ask(PocketRequestCode.GET_MESSAGE_TRACK, ext)
    assert answer.code == 0, answer
    [found] = body_of(answer)["tracks"]
    assert isinstance(found, dict)
    return found


NUMBERS = iter(range(10_000))


async def send(asker: Peer, tag: str = "", *, queue_id: int = 0) -> Sent:
    key = f"KEY{next(NUMBERS):08d}"
    tags = {"TAGS": tag} if tag else {}
    answer = await asker.produce(
        T, b"x", queue_id=queue_id, more={"i": properties_to_text({"UNIQ_KEY": key, **tags})}
    )
    assert answer.ext is not None
    return Sent(asker, answer.ext, key)


async def commit(peer: Peer, offset: int, topic: str = T, queue_id: int = 0) -> None:
    ext = {"consumerGroup": G, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


async def test_consumed(broker: Broker, asker: Peer) -> None:
    sent = await send(asker, "A")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "A"}, client_id="me")
        records(await member.pull(G, T, 0))
        await commit(member, 1)
        found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("CONSUMED", "CONSUMED")
    assert "me" in found["text"]
    [delivery] = found["deliveries"]
    assert (delivery["clientId"], delivery["filteredBy"]) == ("me", "TAG A")


async def test_a_recreated_topic_has_no_tracks_of_the_old_one(broker: Broker, asker: Peer) -> None:
    for topic in (T, "Other"):
        await asker.produce(topic, b"x")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "A", "Other": "*"}, client_id="me")
        for topic in (T, "Other"):
            await member.pull(G, topic, 0)
        assert (await asker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": T})).code == 0
        sent = await send(asker, "A")
        found = await sent.track()
        assert (found["verdict"], found["deliveries"]) == ("NOT_REACHED", [])
        other = await track(asker, topic="Other", queueId=0, queueOffset=0, group=G)
        assert len(other["deliveries"]) == 1


async def test_in_flight(broker: Broker, asker: Peer) -> None:
    sent = await send(asker)
    member = await Peer.at(broker)
    await member.heartbeat(G, {T: "*"}, client_id="me")
    records(await member.pull(G, T, 0))
    found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("IN_FLIGHT", "NOT_CONSUME_YET")
    assert "me" in found["text"]
    assert "not committed yet" in found["text"]
    await member.close()


async def test_filtered_by_tag_hash(broker: Broker, asker: Peer) -> None:
    """RocketMQ's track says CONSUMED_BUT_FILTERED only while the subscription stays as it is."""
    sent = await send(asker, "A")
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "B"}, client_id="me")
        assert (await member.pull(G, T, 0)).code == 20
        await commit(member, 1)
        found = await sent.track()
        assert (found["verdict"], found["trackType"]) == ("FILTERED", "CONSUMED_BUT_FILTERED")
        assert "tags B" in found["text"]
        await member.heartbeat(G, {T: "A"}, client_id="me", sub_version=2)
        found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("FILTERED", "CONSUMED")


async def test_fetched_by_a_member_that_subscribes_another_tag(broker: Broker, asker: Peer) -> None:
    """E3's B0: the last subscription is tagB, the queue's holder asks for tagA and throws it away."""
    sent = await send(asker, "tagB")
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {T: "tagA"}, client_id="c1")
        await second.heartbeat(G, {T: "tagB"}, client_id="c2", sub_version=2)
        records(await first.pull(G, T, 0))
        await commit(first, 1)
        found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("DROPPED_BY_CLIENT", "CONSUMED")
    for part in ("c1", "tags tagB", "tags tagA"):
        assert part in found["text"]


async def send_back(member: Peer, sent: Sent, level: int = 0, **more: Any) -> None:
    _, position = parse_offset_msg_id(sent.msg_id)
    ext = {"offset": position, "group": G, "delayLevel": level, **more}
    assert (await member.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code == 0


async def test_a_retry_is_tracked_by_delay_level_then_by_message(
    tmp_path: Path,
) -> None:
    async with (
        serving(tmp_path, store={"message_delay_level": "1s " * 18}) as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as member,
    ):
        sent = await send(asker)
        await member.heartbeat(G, {T: "*", f"%RETRY%{G}": "*"}, client_id="me")
        records(await member.pull(G, T, 0))
        await send_back(member, sent)
        await commit(member, 1)
        found = await sent.track()
        assert (found["verdict"], found["trackType"]) == ("RETRYING", "CONSUMED")
        assert "delay level 3" in found["text"]

        [copy] = records(await member.pull(G, f"%RETRY%{G}", 0, sys_flag=2))
        found = await sent.track()
        assert found["verdict"] == "RETRYING"
        assert "retried 1 times" in found["text"]
        assert f"{copy.position:016X}" in found["text"]

        await commit(member, 1, f"%RETRY%{G}")
        found = await sent.track()
        assert found["verdict"] == "CONSUMED"
        assert "retried 1 times" in found["text"]


async def test_dead_lettered_with_the_reason(broker: Broker, asker: Peer) -> None:
    tired, given_up = await send(asker), await send(asker)
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0))
        await send_back(member, tired, maxReconsumeTimes=0)
        await send_back(member, given_up, -1)
        await commit(member, 2)
        for sent, reason in ((tired, "failed 1 time,"), (given_up, "delay level -1")):
            found = await sent.track()
            assert found["verdict"] == "DEAD_LETTERED"
            assert f"%DLQ%{G}" in found["text"]
            assert reason in found["text"]


async def test_skipped_by_a_reset(broker: Broker, asker: Peer) -> None:
    await send(asker)
    skipped = await send(asker)
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0, maxMsgNums=1))
        await commit(member, 1)
        await commit(asker, 2)
        found = await skipped.track()
    assert (found["verdict"], found["trackType"]) == ("SKIPPED_BY_RESET", "CONSUMED")
    assert "from 1 to 2" in found["text"]


async def test_skipped_by_a_pull_from_further_on(broker: Broker, asker: Peer) -> None:
    sent = [await send(asker) for _ in range(3)]
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0, maxMsgNums=1))
        records(await member.pull(G, T, 2))
        await commit(member, 3)
        found = await sent[1].track()
    assert found["verdict"] == "SKIPPED_BY_RESET"
    assert "from 1 to 2" in found["text"]
    assert "by me at 127.0.0.1:" in found["text"]
    assert "with a pull from there" in found["text"]


async def test_skipped_because_the_group_began_behind_it(broker: Broker, asker: Peer) -> None:
    """CONSUME_FROM_LAST_OFFSET: the group's first pull is at the end of the queue."""
    skipped = await send(asker)
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        assert (await member.pull(G, T, 1)).code == 19
        await commit(member, 1)
        found = await skipped.track()
    assert (found["verdict"], found["trackType"]) == ("SKIPPED_AT_START", "CONSUMED")
    assert "offset 1" in found["text"]


async def test_expired(tmp_path: Path) -> None:
    """The log rolled over it before the group came."""
    small = {"mapped_file_size_commit_log": 65_536, "file_reserved_time": 0}
    async with serving(tmp_path, store=small) as broker, await Peer.at(broker) as asker:
        sent = await send(asker)
        for _ in range(8):
            await asker.produce(T, b"x" * 20_000)
        broker.parts.messages.store.delete_expired_files(manual=True)
        assert broker.parts.messages.store.min_offset(T, 0) > 0
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            answer = await asker.ask(PocketRequestCode.GET_MESSAGE_TRACK, {"msgId": sent.msg_id})
            assert answer.code == 22
            found = await track(asker, topic=T, queueId=0, queueOffset=0, group=G)
    assert (found["verdict"], found["trackType"]) == ("EXPIRED", "NOT_CONSUME_YET")


async def test_not_reached_yet(broker: Broker, asker: Peer) -> None:
    for _ in range(4):
        await send(asker)
    waiting = await send(asker)
    async with await Peer.at(broker) as member:
        await member.heartbeat(G, {T: "*"}, client_id="me")
        records(await member.pull(G, T, 0, maxMsgNums=1))
        await commit(member, 1)
        found = await waiting.track()
    assert (found["verdict"], found["trackType"]) == ("NOT_REACHED", "NOT_CONSUME_YET")
    assert "3 messages come before it" in found["text"]


async def test_in_a_queue_that_nobody_reads(broker: Broker, asker: Peer) -> None:
    """E2a: half of the queues belong to a member that does not subscribe the topic."""
    sent = await send(asker, queue_id=0)
    async with await Peer.at(broker) as first, await Peer.at(broker) as second:
        await first.heartbeat(G, {"Other": "*"}, client_id="c1")
        await second.heartbeat(G, {T: "*"}, client_id="c2")
        found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("NOBODY_READS", "NOT_CONSUME_YET")
    assert "queue 0 belongs to a member" in found["text"]


async def test_nobody_online(broker: Broker, asker: Peer) -> None:
    """E3c."""
    sent = await send(asker)
    await commit(asker, 0)
    found = await sent.track()
    assert (found["verdict"], found["trackType"]) == ("NOT_ONLINE", "NOT_ONLINE")


async def test_what_the_record_does_not_know_is_not_guessed(tmp_path: Path) -> None:
    """A store of another broker, or a record that has been thrown away."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        sent = await send(asker)
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            records(await member.pull(G, T, 0))
            await commit(member, 1)
    for file in (tmp_path / "deliveries").iterdir():
        file.unlink()
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        found = await track(asker, msgId=sent.key, topic=T, group=G)
    assert found["verdict"] == "UNKNOWN"


async def test_an_isolated_group_tells_which_member_got_it(tmp_path: Path) -> None:
    """Two sub-groups passed the message; the one that asks for it consumed it."""
    async with (
        serving(tmp_path, group_mode="isolate") as broker,
        await Peer.at(broker) as asker,
        await Peer.at(broker) as first,
        await Peer.at(broker) as second,
    ):
        sent = await send(asker, "B")
        await first.heartbeat(G, {T: "A"}, client_id="c1")
        await second.heartbeat(G, {T: "B"}, client_id="c2")
        records(await second.pull(G, T, 0))
        assert (await first.pull(G, T, 0)).code == 20
        for member in (first, second):
            await commit(member, 1)
        found = await sent.track()
    assert found["verdict"] == "CONSUMED"
    assert "c2" in found["text"]


async def test_the_record_survives_a_restart_and_a_torn_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        sent = await send(asker)
        async with await Peer.at(broker) as member:
            await member.heartbeat(G, {T: "*"}, client_id="me")
            records(await member.pull(G, T, 0))
            await commit(member, 1)
    with (tmp_path / "deliveries" / "current").open("ab") as file:
        file.write(b"\0\0\1\0torn")
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        broker.parts.messages.deliveries.event(EventKind.RESET, (G, T, 0), 5, 9, "later")
        found = await track(asker, msgId=sent.key, topic=T, group=G)
        assert found["verdict"] == "CONSUMED"
        [event] = broker.parts.messages.deliveries.find(T, 0, 6)[G].events
        assert event.text == "later"


async def test_the_record_stays_within_its_size(tmp_path: Path) -> None:
    async with serving(tmp_path, delivery_record_size=100_000) as broker:
        record: DeliveryRecord = broker.parts.messages.deliveries
        for number in range(20_000):
            record.event(EventKind.RESET, (f"g{number}", T, 0), number, number + 1, "x" * 50)
            if number % 100 == 0:
                record.tick()
        record.tick()
        files = list((tmp_path / "deliveries").iterdir())
        assert sum(file.stat().st_size for file in files) < 100_000 + 20_000
        assert record.find(T, 0, 19_999)["g19999"].events
        # What is dropped is kept until a thread has folded it into sums.
        await until_async(lambda: record.find(T, 0, 5) == {}, "the oldest rows are folded")
