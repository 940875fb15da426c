"""Orderly pops (order=true): a queue waits until its messages are done."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.broker.events import Events
from pocketmq.broker.pop.order_info import ConsumerOrderInfo, OrderInfo
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store import ConfigFile
from tests.broker.popping import Popper
from tests.broker.serving import Peer, number, serving
from tests.broker.test_pop_model import Bench
from tests.kit.waiting import until_async


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    for number_ in range(4):
        made.send(b"%d" % number_, 0)
    yield made
    made.close()


def bodies(bench: Bench, **more: object) -> list[bytes]:
    return [message.body for message in bench.take(order=True, maxMsgNums=2, **more)]


def test_a_queue_is_blocked_until_all_of_a_pop_is_acknowledged(bench: Bench) -> None:
    first, second = bench.take(order=True, maxMsgNums=2)
    assert first.receipt.split(" ")[3] == "999"
    assert bodies(bench) == []
    assert bench.ack(second) == 0
    assert bench.offsets.query("g", "T", 0) == 0
    assert bodies(bench) == []
    assert bench.ack(first) == 0
    assert bench.offsets.query("g", "T", 0) == 2
    assert bodies(bench) == [b"2", b"3"]


def test_unacknowledged_orderly_messages_return_in_order(bench: Bench) -> None:
    """In the same queue, in order, counted in orderCountInfo; no retry topic."""
    first, _ = bench.take(order=True, maxMsgNums=2, invisibleTime=1_000)
    assert bench.ack(first) == 0
    bench.clock.advance_ms(999)
    assert bodies(bench) == []
    bench.clock.advance_ms(1)
    assert bodies(bench) == [b"1", b"2"]
    assert bench.topics.get("%RETRY%g_T") is None


def test_the_queue_of_another_pop_is_free(bench: Bench) -> None:
    bench.send(b"other", 1)
    assert bodies(bench, queueId=0) == [b"0", b"1"]
    assert bodies(bench) == [b"other"]


def test_an_attempt_that_is_repeated_gets_the_same_messages(bench: Bench) -> None:
    assert bodies(bench, attemptId="x") == [b"0", b"1"]
    assert bodies(bench, attemptId="y") == []
    assert bodies(bench, attemptId="x") == [b"0", b"1"]


def test_a_postponed_message_blocks_its_queue_until_then(bench: Bench) -> None:
    first, second = bench.take(order=True, maxMsgNums=2, invisibleTime=1_000)
    answer = bench.change(first, 5_000)
    assert (answer.code, number(answer, "reviveQid")) == (0, 999)
    assert bench.ack(second) == 0
    bench.clock.advance_ms(4_999)
    assert bodies(bench) == []
    bench.clock.advance_ms(1)
    assert bodies(bench) == [b"0", b"1"]


def test_an_ack_of_an_earlier_pop_does_not_count(bench: Bench) -> None:
    first, _ = bench.take(order=True, maxMsgNums=2, invisibleTime=1_000)
    bench.clock.advance_ms(1_000)
    assert bodies(bench) == [b"0", b"1"]
    assert bench.ack(first) == 0
    assert bench.offsets.query("g", "T", 0) == 0


@pytest.mark.parametrize("offset", [0, 1])
def test_an_ack_of_an_earlier_pop_does_not_undo_a_reset(bench: Bench, offset: int) -> None:
    first, second = bench.take(order=True, maxMsgNums=2)
    assert bench.ack(first) == 0
    bench.pop.offset_reset("g", "T", 0, offset)
    bench.offsets.reset("g", "T", 0, offset)
    assert bench.ack(second) == 0
    assert bench.offsets.query("g", "T", 0) == offset
    assert bodies(bench) == [b"%d" % offset, b"%d" % (offset + 1)]


def test_an_ack_without_its_block_passes_over_nothing(bench: Bench) -> None:
    """The block was lost with kill -9, and with it what of it is still to be done."""
    [done] = bench.take(order=True, maxMsgNums=1)
    assert bench.ack(done) == 0
    bench.save()
    bench.saved_order = {}
    first, second = bench.take(order=True, maxMsgNums=2)
    bench.kill()
    assert bench.ack(second) == 0
    assert bench.offsets.query("g", "T", 0) == 1
    assert bench.ack(first) == 0
    assert bench.ack(second) == 0
    assert bodies(bench) == [b"3"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("order", [False, True])
def test_a_clock_that_ran_ahead_and_was_set_right_hides_nothing(
    bench: Bench, order: bool, restarts: bool
) -> None:
    """Messages were invisible, and the queue blocked, until the clock came by again."""
    day_ms = 24 * 3_600_000
    bench.clock.jump_ms(day_ms)
    _, second = bench.take(order=order, maxMsgNums=2, invisibleTime=1_000)
    assert bench.change(second, 2_000).code == 0
    bench.save()
    bench.clock.jump_ms(-day_ms)
    if restarts:
        bench.kill()
    left = [] if order else [b"2"]
    assert [message.body for message in bench.take(order=order, maxMsgNums=1)] == left
    bench.clock.advance_ms(2_000)
    bench.pop.step()
    bench.chance = 99
    again = bench.take(order=order, maxMsgNums=2) + bench.take(order=order, maxMsgNums=2)
    assert {b"0", b"1"} <= {message.body for message in again}


def test_an_ack_of_a_message_that_was_not_handed_out_is_illegal(bench: Bench) -> None:
    first, _ = bench.take(order=True, maxMsgNums=2)
    other = type(first)(**{**first.__dict__, "offset": 3})
    assert bench.ack(other) == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("saved", [False, True])
def test_the_block_survives_kill_9(bench: Bench, saved: bool) -> None:
    messages = bench.take(order=True, maxMsgNums=2)
    if saved:
        bench.save()
    bench.kill()
    assert bodies(bench) == []
    for message in messages:
        assert bench.ack(message) == 0
    assert bodies(bench) == [b"2", b"3"]


def test_the_file_is_as_rocketmq_writes_it() -> None:
    """Offsets as distances from the first, bits as a Java long; what it does not know is left out."""
    info = OrderInfo(100, 5, [7, 9, 12], "a", 0b101, 101, {9: 200}, {7: 1})
    data = {
        "a": "a",
        "cm": 5,
        "i": 5,
        "l": 101,
        "o": [7, 2, 5],
        "oc": {7: 1},
        "ot": {9: 200},
        "popTime": 100,
    }
    assert info.to_json() == data
    assert OrderInfo.from_json(data) == info
    assert (info.next_offset, info.free_ms) == (9, 200)


async def test_a_waiting_pop_is_woken_when_its_queue_is_free(tmp_path: Path) -> None:
    """By the last ack, and by time."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        for text in (b"0", b"1", b"2"):
            await peer.produce("T", text)
        popper = Popper(peer, broker.clock.now_ms)
        [first] = await popper.pop(order=True, maxMsgNums=1)
        async with await Peer.at(broker) as other:
            waiting = Popper(other, broker.clock.now_ms)
            opaque = waiting.send(order=True, maxMsgNums=1, pollTime=15_000, invisibleTime=300)
            await until_async(lambda: broker.parts.services.pop.polling.count == 1)
            assert (await popper.ack(first)).code == 0
            answer = await other.answer(opaque)
            assert (answer.code, bytes(answer.body).count(b"1\x01T")) == (0, 1)
            again = waiting.send(order=True, maxMsgNums=1, pollTime=15_000)
            answer = await other.answer(again)
            assert (answer.code, bytes(answer.body).count(b"1\x01T")) == (0, 1)
            assert answer.ext is not None
            assert answer.ext["orderCountInfo"] == "0 qo0%1 1;0 0 1"
        ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 0}
        blocked = await peer.ask(RequestCode.NOTIFICATION, {**ext, "order": True})
        assert blocked.ext == {"hasMsg": "false", "pollingFull": "false"}


def test_a_block_that_ends_during_a_scan_is_seen_by_the_next(
    tmp_path: Path,
) -> None:
    """A look that read the clock twice left out what ended in between: no pop was woken."""
    clock = MovingClock(1_000_000)
    told: list[str] = []
    events = Events()
    events.poppable.to(lambda topic, _group: told.append(topic))
    blocks = ConsumerOrderInfo(ConfigFile(str(tmp_path / "order.json")), clock, events)
    # Each block ends a second after the one before.
    blocks.from_json(
        {
            "table": {
                f"T{number}@g": {
                    "0": {"popTime": clock.now_ms(), "i": number * 1_000, "o": [0]},
                }
                for number in range(1, 20)
            }
        }
    )
    clock.moves = True
    for _ in range(20):
        blocks.tick()
    assert sorted(told) == sorted(f"T{number}" for number in range(1, 20))


class MovingClock(ManualClock):
    """A clock that advances by a second with each look at it, once it moves."""

    moves = False

    def now_ms(self) -> int:
        if self.moves:
            self.advance_ms(1_000)
        return super().now_ms()


async def test_a_clock_jump_past_a_block_wakes_the_waiting_pop(
    tmp_path: Path,
) -> None:
    """The block ends by wall time, so it is wall time that tells who is free."""
    clock = ManualClock()
    async with (
        serving(tmp_path, clock=clock) as broker,
        await Peer.at(broker) as peer,
        await Peer.at(broker) as other,
    ):
        await peer.produce("T", b"0")
        assert await Popper(peer, clock.now_ms).bodies(order=True, invisibleTime=5_000) == [b"0"]
        waiting = Popper(other, clock.now_ms)
        opaque = waiting.send(order=True, pollTime=15_000)
        await until_async(lambda: broker.parts.services.pop.polling.count == 1)
        broker.parts.services.pop.step()
        clock.jump_ms(6_000)
        broker.parts.services.pop.step()
        assert (await other.answer(opaque)).code == ResponseCode.SUCCESS
