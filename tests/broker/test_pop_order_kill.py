"""Orderly pops and kill -9: what was acknowledged is done, what is out stays out, no queue waits in vain."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.model.names import TAKEN_GROUP
from pocketmq.store.errors import DiskFull
from tests.broker.test_pop_model import Bench

DAY_MS = 24 * 3_600_000


@pytest.fixture(params=["never saved", "saved before"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path)
    for number in range(8):
        made.send(b"%d" % number, 0)
    if request.param == "saved before":
        [first] = made.take(order=True, maxMsgNums=1)
        made.ack(first)
        made.pop.offset_reset("g", "T", 0, 0)
        made.save()
    yield made
    made.close()


def bodies(bench: Bench, **more: Any) -> list[bytes]:
    how = {"order": True, "maxMsgNums": 2, "invisibleTime": DAY_MS, **more}
    return [message.body for message in bench.take(**how)]


def test_what_was_acknowledged_blocks_nothing(bench: Bench) -> None:
    for message in bench.take(order=True, maxMsgNums=2, invisibleTime=DAY_MS):
        assert bench.ack(message) == 0
    bench.kill()
    assert bodies(bench) == [b"2", b"3"]


def test_of_a_pop_that_is_done_in_part_the_rest_is_awaited(bench: Bench) -> None:
    first, second, third = bench.take(order=True, maxMsgNums=3, invisibleTime=DAY_MS)
    assert bench.ack(second) == 0
    assert bench.ack(first) == 0
    for _ in range(2):
        bench.kill()
        assert bench.offsets.query("g", "T", 0) == 2
        assert bodies(bench) == []
    assert bench.ack(third) == 0
    bench.kill()
    assert bodies(bench) == [b"3", b"4"]


def test_a_changed_time_is_kept(bench: Bench) -> None:
    [message] = bench.take(order=True, maxMsgNums=1, invisibleTime=DAY_MS)
    assert bench.change(message, 1_000).code == 0
    bench.kill()
    assert bodies(bench) == []
    bench.clock.advance_ms(1_000)
    assert bodies(bench, maxMsgNums=1) == [b"0"]


def test_an_attempt_that_is_repeated_gets_the_same_messages(bench: Bench) -> None:
    """Of a client that did not get the answer."""
    assert bodies(bench, attemptId="x") == [b"0", b"1"]
    bench.kill()
    assert bodies(bench, attemptId="y") == []
    assert bodies(bench, attemptId="x") == [b"0", b"1"]


def test_how_often_a_message_was_consumed_is_kept(bench: Bench) -> None:
    bench.take(order=True, maxMsgNums=1, invisibleTime=1_000)
    bench.clock.advance_ms(1_000)
    bench.take(order=True, maxMsgNums=1, invisibleTime=1_000)
    bench.kill()
    info = bench.pop.order.get(next(iter(bench.pop.order._table)))
    assert info is not None
    assert info.consumed_times == {0: 1}


@pytest.mark.parametrize("saved", [False, True])
def test_a_reset_is_not_undone(bench: Bench, saved: bool) -> None:
    for message in bench.take(order=True, maxMsgNums=4):
        assert bench.ack(message) == 0
    if saved:
        bench.save()
    bench.pop.offset_reset("g", "T", 0, 1)
    bench.offsets.reset("g", "T", 0, 1)
    bench.kill()
    assert bodies(bench) == [b"1", b"2"]


def test_an_offset_that_was_saved_later_is_not_undone(bench: Bench) -> None:
    """Of the two files the one of the offsets is the younger."""
    for message in bench.take(order=True, maxMsgNums=4):
        assert bench.ack(message) == 0
    bench.offsets.place("g", "T", 0, 7)
    bench.saved = bench.offsets.to_json()
    bench.kill()
    assert bodies(bench) == [b"7"]


def test_a_full_disk_changes_nothing(bench: Bench) -> None:
    first, second = bench.take(order=True, maxMsgNums=2, invisibleTime=DAY_MS)
    assert bench.ack(second) == 0
    bench.store.refuse(DiskFull("here", "full"))
    assert bench.ack(first) == 1
    assert bench.change(first, 0).code == 1
    assert bench.offsets.query("g", "T", 0) == 0
    bench.store.refuse(None)
    assert bodies(bench) == []
    assert bench.ack(first) == 0
    bench.store.refuse(DiskFull("here", "full"))
    with pytest.raises(AssertionError, match="answer code=1"):
        bodies(bench)
    bench.store.refuse(None)
    assert bodies(bench) == [b"2", b"3"]


def test_nothing_is_read_for_a_file_of_another_broker(bench: Bench) -> None:
    """An Apache broker, which logs no orderly pops, had the store for a while: its table is what counts."""
    assert bodies(bench) == [b"0", b"1"]
    bench.save()
    bench.saved_order = {"table": {}}
    bench.kill()
    for message in bench.take(order=True, maxMsgNums=2, invisibleTime=DAY_MS):
        assert bench.ack(message) == 0
    saved = bench.pop.order._file.load()
    assert isinstance(saved, dict)
    bench.saved_order = saved
    bench.kill()
    assert bodies(bench) == [b"2", b"3"]


def test_an_order_file_ahead_of_the_log_hides_no_message(bench: Bench) -> None:
    """It was saved before the power went, which took the end of the log."""
    bench.save()
    bench.saved_order["logged"] = {bench.pop.log.topic: 1_000}
    bench.saved_order["table"] = {}
    bench.kill()
    for message in bench.take(order=True, maxMsgNums=2, invisibleTime=DAY_MS):
        assert bench.ack(message) == 0
    saved = bench.pop.order._file.load()
    assert isinstance(saved, dict)
    bench.saved_order = saved
    bench.kill()
    assert bodies(bench) == [b"2", b"3"]


def test_a_record_that_cannot_be_read_is_left_out(bench: Bench) -> None:
    assert bodies(bench) == [b"0", b"1"]
    for body in (b"{", b"[]", b"{}", b'{"c":"g","t":"T","q":0,"n":5,"info":{"o":[]}}'):
        bench.pop.log.note(0, "order", "k", body)
    bench.kill()
    assert bodies(bench) == []
    assert bench.offsets.query("g", "T", 0) == 0


def test_an_acknowledgement_says_how_far_the_log_has_to_be_safe(bench: Bench) -> None:
    """With SYNC_FLUSH its answer waits for that."""
    [message] = bench.take(order=True, maxMsgNums=1, invisibleTime=DAY_MS)
    queue = GroupQueue("g", "T", 0)
    end = bench.acks._receipts.ack(queue, 0, message.receipt, bench.connection)
    assert end == bench.pop.log.end == bench.store.commit_log_max_position
    assert bench.offsets.query(TAKEN_GROUP, bench.pop.log.topic, 0) > 0
