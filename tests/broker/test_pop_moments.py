"""What happens twice within one millisecond, whose number names pops, changes and receipts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.popping import Popped
from tests.broker.test_pop_model import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Its clock stands still."""
    made = Bench(tmp_path)
    for number in range(8):
        made.send(b"%d" % number, 0)
    yield made
    made.close()


def _come(bench: Bench) -> list[bytes]:
    """What comes once the invisible time is over."""
    bench.clock.advance_ms(5_001)
    while bench.pop.step():
        pass
    return sorted(message.body for message in bench.take() + bench.take())


def _changed(bench: Bench, message: Popped, invisible_ms: int) -> Popped:
    """Change the message's time; returns it with its new receipt."""
    answer = bench.change(message, invisible_ms)
    assert answer.code == 0
    assert answer.ext is not None
    words = message.receipt.split(" ")
    words[:3] = [str(message.offset), answer.ext["popTime"], answer.ext["invisibleTime"]]
    return Popped(**{**message.__dict__, "receipt": " ".join(words)})


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("place", [0, 3])
def test_a_message_changed_at_once_takes_no_other_with_it(
    bench: Bench, place: int, killed: bool
) -> None:
    found = bench.take()
    _changed(bench, found[place], 3_000)
    if killed:
        bench.kill()
    assert _come(bench) == [b"%d" % number for number in range(8)]


def test_the_others_can_be_acknowledged_after_the_change(bench: Bench) -> None:
    found = bench.take()
    first = _changed(bench, found[0], 3_000)
    for message in [first, *found[2:]]:
        assert bench.ack(message) == 0
    bench.kill()
    assert _come(bench) == [b"1"]


def test_each_change_of_a_moment_ends_the_receipts_before_it(bench: Bench) -> None:
    receipts = [bench.take(maxMsgNums=1)[0]]
    for _ in range(4):
        receipts.append(_changed(bench, receipts[-1], 3_000))
    assert len({receipt.receipt for receipt in receipts}) == 5
    for old in receipts[:-1]:
        assert bench.change(old, 0).code == 208
        assert bench.ack(old) == 0
    assert next(iter(bench.pop.log.state.live.values())).unacked == [0]
    assert bench.ack(receipts[-1]) == 0
    assert len(bench.pop.log.state) == 0


def test_all_of_a_pop_can_be_given_back_at_once(bench: Bench) -> None:
    for message in bench.take():
        _changed(bench, message, 0)
    assert _come(bench) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("killed", [False, True])
def test_a_pop_after_a_reset_does_not_replace_the_first(bench: Bench, killed: bool) -> None:
    """Of two pops from one offset at one time, the second of which does not ask for all of the first."""
    bench.send(b"other queue", 1)
    assert len(bench.take(queueId=0)) == 8
    bench.pop.offset_reset("g", "T", 0, 0)
    second = bench.take(queueId=0, maxMsgNums=1)
    for message in second:
        assert bench.ack(message) == 0
    bench.pop.offset_reset("g", "T", 0, 8)
    if killed:
        bench.kill()
        bench.pop.offset_reset("g", "T", 0, 8)
    assert _come(bench) == sorted([*(b"%d" % number for number in range(8)), b"other queue"])


def test_a_pop_skips_the_queue_whose_pop_time_is_taken(bench: Bench) -> None:
    """All queues of a pop share its time; the next pop gets the rest."""
    bench.send(b"other queue", 1)
    assert len(bench.take(queueId=0)) == 8
    bench.pop.offset_reset("g", "T", 0, 0)
    bench.chance = 1
    found = bench.take(), bench.take()
    assert [len(each) for each in found] == [1, 8]


def test_an_orderly_receipt_ends_with_a_pop_of_the_same_time(bench: Bench) -> None:
    [first] = bench.take(order=True, maxMsgNums=1)
    assert bench.change(first, 0).code == 0
    [again] = bench.take(order=True, maxMsgNums=1)
    assert (again.body, first.body) == (b"0", b"0")
    assert first.receipt != again.receipt
    assert bench.ack(first) == 0
    assert bench.offsets.query("g", "T", 0) == 0
    assert bench.ack(again) == 0
    assert bench.offsets.query("g", "T", 0) == 1


def test_acks_do_not_count_for_a_later_check_point_of_the_name(
    bench: Bench,
) -> None:
    """A clock was set back, and comes by the same millisecond: the log has the former's acks before."""
    bench.send(b"long", 1)
    bench.chance = 1
    long, *_ = bench.take(queueId=1, invisibleTime=600_000)
    first = bench.take(queueId=0)
    moment = bench.clock.now_ms()
    bench.clock.advance_ms(10)
    for message in first:
        assert bench.ack(message) == 0
    bench.pop.tick()
    bench.save()
    bench.clock.jump_ms(moment - bench.clock.now_ms())
    bench.pop.offset_reset("g", "T", 0, 0)
    assert len(bench.take(queueId=0)) == 8
    bench.kill()
    bench.pop.offset_reset("g", "T", 0, 8)
    assert _come(bench) == [b"%d" % number for number in range(8)]
    assert bench.ack(long) == 0
