"""Popping over real sockets (wire.md 2.6): what goes out, comes back, is done."""

import shutil
from pathlib import Path

import pytest

from pocketmq.model.message_codec import get_property
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.pop_steps import Turned, step
from tests.broker.popping import Popper
from tests.broker.serving import Peer, number, serving
from tests.kit.waiting import until_async


async def test_a_popped_message_returns_from_the_retry_topic(
    tmp_path: Path,
) -> None:
    """Not before its time; then once more with a count, its first pop, and the topic's own name."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        for text in (b"one", b"two"):
            await peer.produce("T", text, TAGS="a", KEYS="k")
        first = await popper.pop()
        assert [message.body for message in first] == [b"one", b"two"]
        assert await popper.pop() == []
        assert (await popper.ack(first[0])).code == 0
        clock.advance_ms(59_999)
        step(broker)
        assert await popper.pop() == []
        clock.advance_ms(1)
        step(broker)
        [again] = await popper.pop()
        assert (again.body, again.topic, again.reconsume_times) == (b"two", "%RETRY%g_T", 1)
        assert (
            get_property(again.properties, b"1ST_POP_TIME") == first[1].receipt.split()[1].encode()
        )
        assert get_property(again.properties, b"ORIGIN_GROUP") == b"g"
        assert get_property(again.properties, b"TAGS") == b"a"
        assert (await popper.ack(again)).code == 0
        clock.advance_ms(60_001)
        step(broker)
        assert await popper.pop() == []
        assert len(broker.parts.services.pop.log.state) == 0


async def test_in_the_place_of_a_lost_message_no_other_comes_again(tmp_path: Path) -> None:
    """Its queue entry is blank and names the log's first record: a message of another topic."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.produce("Secret", b"not for g")
        for text in (b"one", b"lost", b"three"):
            await peer.produce("T", text)
        assert len(await Popper(peer, clock.now_ms).pop()) == 3
    [log_file] = (tmp_path / "commitlog").glob("0*")
    with log_file.open("r+b") as file:
        file.seek(log_file.read_bytes().index(b"lost"))
        file.write(b"\xff")
    shutil.rmtree(tmp_path / "consumequeue")
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        clock.advance_ms(60_000)
        step(broker)
        assert await Popper(peer, clock.now_ms).bodies() == [b"one", b"three"]


async def test_a_batch_of_acks_ends_messages_of_several_check_points(tmp_path: Path) -> None:
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        for text in range(8):
            await peer.produce("T", b"%d" % text, queue_id=text % 2)
        messages = await popper.pop(maxMsgNums=5) + await popper.pop()
        assert len(messages) == 8
        assert (await popper.batch_ack([m for m in messages if m.body != b"3"])).code == 0
        clock.advance_ms(60_000)
        step(broker)
        assert await popper.bodies() == [b"3"]


async def test_a_changed_invisible_time_counts_from_the_change(tmp_path: Path) -> None:
    """The answer names the new receipt; the old one is worth nothing any more."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        await peer.produce("T", b"one")
        [message] = await popper.pop()
        clock.advance_ms(30_000)
        answer = await popper.change(message, 10_000)
        assert (answer.code, number(answer, "invisibleTime")) == (0, 10_000)
        assert number(answer, "popTime") == clock.now_ms()
        assert (await popper.change(message, 5_000)).code == ResponseCode.NO_MESSAGE
        clock.advance_ms(9_999)
        step(broker)
        assert await popper.pop() == []
        clock.advance_ms(1)
        step(broker)
        assert await popper.bodies() == [b"one"]


async def test_what_was_acknowledged_cannot_be_made_visible_again(tmp_path: Path) -> None:
    """Ours: 208 where RocketMQ hands it out once more."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        await peer.produce("T", b"one")
        [message] = await popper.pop()
        assert (await popper.ack(message)).code == 0
        assert (await popper.ack(message)).code == 0
        assert (await popper.change(message, 0)).code == ResponseCode.NO_MESSAGE
        clock.advance_ms(60_000)
        step(broker)
        assert await popper.pop() == []


async def test_a_pop_waits_for_a_message_that_it_lets_through(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as broker,
        await Peer.at(broker) as peer,
        await Peer.at(broker) as other,
    ):
        now_ms = broker.clock.now_ms
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        opaque = Popper(peer, now_ms).send(pollTime=15_000, expType="TAG", exp="a || c")
        await until_async(lambda: broker.parts.services.pop.polling.count == 1)
        info = await other.ask(
            RequestCode.POLLING_INFO, {"consumerGroup": "g", "topic": "T", "queueId": -1}
        )
        assert number(info, "pollingNum") == 1
        await other.produce("T", b"no", TAGS="b")
        await other.produce("T", b"yes", queue_id=1, TAGS="c")
        answer = await peer.answer(opaque)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert b"yes" in bytes(answer.body)
        assert b"no" not in bytes(answer.body)
        assert broker.parts.services.pop.polling.count == 0


async def test_one_message_wakes_one_of_the_pops_that_wait(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as broker,
        await Peer.at(broker) as one,
        await Peer.at(broker) as two,
    ):
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        for peer in (one, two):
            Popper(peer, broker.clock.now_ms).send(pollTime=15_000)
        await until_async(lambda: broker.parts.services.pop.polling.count == 2)
        async with await Peer.at(broker) as producer:
            await producer.produce("T")
        await one.next()
        assert broker.parts.services.pop.polling.count == 1


async def test_a_pop_that_has_waited_in_vain_gets_210(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        popper = Popper(peer, broker.clock.now_ms)
        answer = await popper.answer(pollTime=200)
        assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert answer.ext is not None
        assert answer.ext["startOffsetInfo"] == answer.ext["msgOffsetInfo"] == ""


@pytest.mark.parametrize("off_ms", [-86_400_000, -60_000, 3_600_000])
async def test_the_clock_of_a_client_decides_nothing(tmp_path: Path, off_ms: int) -> None:
    """Ours (invariant 3): behind or ahead, a pop and a notification wait their time and get what is there."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        popper = Popper(peer, lambda: broker.clock.now_ms() + off_ms)
        assert (await popper.answer(pollTime=200)).code == 210
        ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 15_000}
        noticed = peer.send(
            RequestCode.NOTIFICATION, {**ext, "bornTime": broker.clock.now_ms() + off_ms}
        )
        service = broker.parts.services.pop
        await until_async(lambda: service.notifications.count == 1)
        await peer.produce("T", b"one")
        assert (await peer.answer(noticed)).ext == {"hasMsg": "true", "pollingFull": "false"}
        assert await popper.bodies() == [b"one"]
        waiting = popper.send(pollTime=15_000)
        await until_async(lambda: service.polling.count == 1)
        await peer.produce("T", b"two")
        assert (await peer.answer(waiting)).code == 0


async def test_too_many_waiting_pops_are_sent_away_with_209(tmp_path: Path) -> None:
    async with serving(tmp_path, pop_polling_size=0) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        popper = Popper(peer, broker.clock.now_ms)
        popper.send(pollTime=15_000)
        await until_async(lambda: broker.parts.services.pop.polling.count == 1)
        assert (await popper.answer(pollTime=15_000)).code == ResponseCode.POLLING_FULL


async def test_the_broker_that_stops_answers_the_pops_that_wait(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        opaque = Popper(peer, broker.clock.now_ms).send(pollTime=15_000)
        await until_async(lambda: broker.parts.services.pop.polling.count == 1)
        broker.parts.services.pop.release()
        assert (await peer.answer(opaque)).code == ResponseCode.POLLING_TIMEOUT


async def test_tags_and_sql_choose_and_skip(tmp_path: Path) -> None:
    """The group moves on behind what its expression did not let through."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for n in range(6):
            await peer.produce("T", b"%d" % n, TAGS="ab"[n % 2], price=str(n))
        tagged = Popper(peer, clock.now_ms, group="tags")
        assert await tagged.bodies(expType="TAG", exp="a") == [b"0", b"2", b"4"]
        sql = Popper(peer, clock.now_ms, group="sql")
        assert await sql.bodies(expType="SQL92", exp="price > 3") == [b"4", b"5"]
        bad = await sql.answer(expType="SQL92", exp="price >")
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        none = Popper(peer, clock.now_ms, group="none")
        assert await none.bodies(expType="TAG", exp="z") == []
        assert await none.bodies() == []
        assert broker.parts.tables.offsets.query("none", "T", 0) == 6


async def test_a_new_group_begins_where_its_init_mode_says(tmp_path: Path) -> None:
    """0: from the first message. 1: from the last, but a young queue is read from its beginning."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for n in range(3):
            await peer.produce("T", b"%d" % n)
        assert len(await Popper(peer, clock.now_ms, group="g0").pop(initMode=0)) == 3
        assert len(await Popper(peer, clock.now_ms, group="g1").pop(initMode=1)) == 3


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "not exist, apply first please!"),
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER, "queueId[9] is illegal"),
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER, "greater than 32"),
        ({"topic": "WriteOnly"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"consumerGroup": "off"}, ResponseCode.NO_PERMISSION, "subscription group no permission"),
        ({"consumerGroup": "a/b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist"),
    ],
)
async def test_what_cannot_be_popped_is_refused_with_rocketmqs_codes(
    tmp_path: Path, more: dict[str, object], code: ResponseCode, remark: str
) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        broker.parts.tables.topics.update(TopicConfig("WriteOnly", 1, 1, 2))
        broker.parts.tables.groups.update(GroupConfig("off", consume_enable=False))
        answer = await Popper(peer, broker.clock.now_ms).answer(**more)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert answer.ext is not None
        assert answer.ext["popTime"] == "0"


async def test_receipts_that_are_none_are_refused_with_rocketmqs_codes(tmp_path: Path) -> None:
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.produce("T", b"one")
        [message] = await Popper(peer, clock.now_ms).pop()
        good = message.ext("g")
        ask = peer.ask
        ack = RequestCode.ACK_MESSAGE
        assert (await ask(ack, {**good, "topic": "No"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await ask(ack, {**good, "queueId": 7})).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await ask(ack, {**good, "offset": 9})).code == ResponseCode.NO_MESSAGE
        assert (await ask(ack, {**good, "extraInfo": "x y"})).code == ResponseCode.SYSTEM_ERROR
        # A revive queue that does not exist makes none.
        forged = {**good, "extraInfo": "0 1 60000 500 0 b 0 0"}
        assert (await ask(ack, forged)).code == 0
        assert {
            queue for topic, queue in broker.parts.messages.store.queues() if "REVIVE" in topic
        } == {1}
        empty = await ask(RequestCode.BATCH_ACK_MESSAGE, None, b"{}")
        assert empty.code == ResponseCode.NO_MESSAGE
        change = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        past = await ask(change, {**good, "offset": 1, "invisibleTime": 1})
        assert past.code == ResponseCode.NO_MESSAGE


async def test_a_message_popped_in_vain_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    """Ours, popDeadLetterEnable: after retryMaxTimes, with where it is from."""
    clock = Turned()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        broker.parts.tables.groups.update(GroupConfig("g", retry_max_times=2))
        await peer.produce("T", b"one")
        for times in range(3):
            [message] = await popper.pop()
            assert message.reconsume_times == times
            clock.advance_ms(60_000)
            step(broker)
        assert await popper.pop() == []
        [entry] = broker.parts.messages.store.entries("%DLQ%g", 0, 0, 9)
        record = broker.parts.messages.store.record_at(entry[0])
        assert record is not None
        assert get_property(bytes(record)[-400:], b"RETRY_TOPIC") == b"T"
        # Its sender says that it was consumed as often as can be counted.
        await peer.produce("T", b"often", more={"j": (1 << 31) - 1})
        [message] = await popper.pop()
        assert message.reconsume_times == (1 << 31) - 1
        clock.advance_ms(60_000)
        step(broker)
        assert len(broker.parts.messages.store.entries("%DLQ%g", 0, 0, 9)) == 2


async def test_a_notification_tells_that_there_is_something_to_pop(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 15_000, "bornTime": 0}
        opaque = peer.send(RequestCode.NOTIFICATION, ext)
        await until_async(lambda: broker.parts.services.pop.notifications.count == 1)
        async with await Peer.at(broker) as producer:
            await producer.produce("T", queue_id=1)
        answer = await peer.answer(opaque)
        assert answer.ext == {"hasMsg": "true", "pollingFull": "false"}
        await Popper(peer, broker.clock.now_ms).pop()
        answer = await peer.ask(RequestCode.NOTIFICATION, {**ext, "pollTime": 0})
        assert answer.ext == {"hasMsg": "false", "pollingFull": "false"}


async def test_peeking_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await peer.produce("T", b"one")
        ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 32}
        for _ in range(2):
            answer = await peer.ask(RequestCode.PEEK_MESSAGE, ext)
            assert (answer.code, number(answer, "restNum")) == (0, 1)
        assert await Popper(peer, broker.clock.now_ms).bodies() == [b"one"]
        assert (await peer.ask(RequestCode.PEEK_MESSAGE, ext)).code == ResponseCode.PULL_NOT_FOUND
