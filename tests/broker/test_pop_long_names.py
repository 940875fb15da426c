"""Pops whose retry topic has more bytes than RocketMQ 4.9 can store, and messages that cannot be copied."""

import logging
from pathlib import Path
from typing import Any

import pytest

from pocketmq.model.record import MAGIC_V1, MAGIC_V2, read_record
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.popping import Popped, Popper
from tests.broker.serving import Peer, serving

TOPIC, GROUP = "t" * 120, "g" * 100
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
OUT_MS = 60_000


async def one_again(popper: Popper, times: int) -> Popped:
    [message] = await popper.pop()
    assert (message.body, message.topic, message.reconsume_times) == (b"one", RETRY, times)
    return message


async def test_what_is_popped_under_long_names_comes_again_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """The retry topic's records are of version 2, and clients get them as of version 1."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        await peer.produce(TOPIC, b"one")
        popper = Popper(peer, clock.now_ms, TOPIC, GROUP)
        assert await popper.bodies() == [b"one"]
        for times in (1, 2):
            clock.advance_ms(OUT_MS)
            broker.parts.services.pop.step()
            await one_again(popper, times)
        [(position, _, _), _] = broker.parts.messages.store.entries(RETRY, 0, 0, 9)
        record = broker.parts.messages.store.record_at(position)
        assert record is not None
        assert read_record(record).magic == MAGIC_V2
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms, TOPIC, GROUP)
        clock.advance_ms(OUT_MS)
        broker.parts.services.pop.step()
        answer = await popper.answer()
        assert read_record(answer.body).magic == MAGIC_V1
        clock.advance_ms(OUT_MS)
        broker.parts.services.pop.step()
        assert (await popper.ack(await one_again(popper, 4))).code == ResponseCode.SUCCESS
        clock.advance_ms(OUT_MS)
        broker.parts.services.pop.step()
        assert await popper.pop() == []


async def test_a_pop_whose_messages_could_not_come_again_is_refused(tmp_path: Path) -> None:
    """Before anything goes out; an orderly pop needs no retry topic."""
    store = {"auto_message_version_on_topic_len": False}
    async with serving(tmp_path, store=store) as broker, await Peer.at(broker) as peer:
        await peer.produce(TOPIC, b"one")
        popper = Popper(peer, broker.clock.now_ms, TOPIC, GROUP)
        refused = await popper.answer()
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "autoMessageVersionOnTopicLen=true" in (refused.remark or "")
        assert "228 bytes" in (refused.remark or "")
        assert await popper.bodies(order=True) == [b"one"]


async def test_popped_messages_larger_than_a_limit_set_since_come_again(tmp_path: Path) -> None:
    """maxMessageSize is for senders. So it is for what a pull consumer sends back."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        sent = await peer.produce("T", bytes(3000))
        assert len(await Popper(peer, clock.now_ms).pop()) == 1
    small: dict[str, Any] = {"max_message_size": 1000}
    async with serving(tmp_path, clock=clock, store=small) as broker, await Peer.at(broker) as peer:
        clock.advance_ms(OUT_MS)
        broker.parts.services.pop.step()
        [message] = await Popper(peer, clock.now_ms).pop()
        assert (len(message.body), message.reconsume_times) == (3000, 1)
        assert sent.ext is not None
        position = int(sent.ext["msgId"][16:], 16)
        back = {"offset": position, "group": "g", "delayLevel": 1, "originTopic": "T"}
        answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.SUCCESS
        refused = await peer.produce("T", bytes(3000))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("long_first", [True, False])
async def test_a_message_that_cannot_be_copied_holds_up_no_other_and_is_tried_ever_more_rarely(
    tmp_path: Path, long_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays out: the day that the setting is put right, it comes again."""
    clock = ManualClock()
    names = [(TOPIC, GROUP), ("T", "g")]
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for topic, group in names if long_first else reversed(names):
            await peer.produce(topic, topic.encode())
            assert len(await Popper(peer, clock.now_ms, topic, group).pop()) == 1
    short: dict[str, Any] = {"auto_message_version_on_topic_len": False}
    async with serving(tmp_path, clock=clock, store=short) as broker, await Peer.at(broker) as peer:
        popper = Popper(peer, clock.now_ms)
        clock.advance_ms(OUT_MS)
        broker.parts.services.pop.step()
        [message] = await popper.pop()
        assert message.body == b"T"
        await popper.ack(message)
        caplog.clear()
        for _ in range(1_000):
            clock.advance_ms(1_000)
            broker.parts.services.pop.step()
        tries = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert 0 < len(tries) < 12
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        broker.parts.services.pop.step()
        [message] = await Popper(peer, clock.now_ms, TOPIC, GROUP).pop()
        assert (message.topic, message.reconsume_times) == (RETRY, 1)
