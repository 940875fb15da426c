"""What counts as consumed: committed offsets and acknowledgements, whatever a member has merely pulled."""

from pathlib import Path

from pocketmq.broker.figures.consumed import COMMIT_MS, GROUP_CONSUMED_NUMS, SPAN_MS, Consumed
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from tests.broker.popping import Popper
from tests.broker.serving import Peer, body_of, serving


async def in_minute(peer: Peer, group: str) -> int:
    ext = {"statsName": GROUP_CONSUMED_NUMS, "statsKey": f"T@{group}"}
    answer = await peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, ext)
    assert answer.code == 0
    return int(body_of(answer)["statsMinute"]["sum"])


async def commit(peer: Peer, offset: int, *, oneway: bool = True) -> None:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset}
    if oneway:
        # As members do.
        peer.send(RequestCode.UPDATE_CONSUMER_OFFSET, ext, oneway=True)
    else:
        assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code == 0


async def test_commits_of_members_count_and_an_administrators_do_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        for n in range(5):
            await peer.produce("T", b"%d" % n)
        assert await in_minute(peer, "g") == 0
        # The first offset of a group that did not pull says where it begins, not what it has done.
        await commit(peer, 1)
        await commit(peer, 3)
        assert await in_minute(peer, "g") == 2
        await commit(peer, 5, oneway=False)
        await commit(peer, 2, oneway=False)
        assert await in_minute(peer, "g") == 2
        await commit(peer, 4)
        assert await in_minute(peer, "g") == 4


async def test_a_first_commit_counts_from_where_the_group_began(tmp_path: Path) -> None:
    """A slow group showed 0 a second until its second commit, ten seconds after its start."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        for n in range(5):
            await peer.produce("T", b"%d" % n)
        await peer.heartbeat("g", {"T": "*"})
        await peer.pull("g", "T", 1)
        await commit(peer, 4)
        assert await in_minute(peer, "g") == 3


async def test_a_pop_counts_when_it_is_acknowledged(tmp_path: Path) -> None:
    """Once, however often the acknowledgement comes; and what the filter passes over."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker, await Peer.at(broker) as peer:
        for n in range(6):
            await peer.produce("T", b"%d" % n, TAGS="ab"[n % 2])
        popper = Popper(peer, clock.now_ms)
        first = await popper.pop(maxMsgNums=2)
        assert await in_minute(peer, "g") == 0
        for _ in range(2):
            await popper.ack(first[0])
        assert await in_minute(peer, "g") == 1
        tagged = Popper(peer, clock.now_ms, group="tags")
        found = await tagged.pop(expType="TAG", exp="a")
        passed_over = await in_minute(peer, "tags")
        await tagged.batch_ack(found)
        assert (passed_over, await in_minute(peer, "tags")) == (3, 6)
        ordered = Popper(peer, clock.now_ms, group="ordered")
        held = await ordered.pop(order=True, maxMsgNums=3)
        assert await in_minute(peer, "ordered") == 0
        for message in held:
            await ordered.ack(message)
        assert await in_minute(peer, "ordered") == 3


def test_commits_rate_right_from_the_first_one_on() -> None:
    """10 a second, committed every 5 s: never another rate, which a finding would repeat; then it stands."""
    clock = ManualClock()
    consumed = Consumed(clock)
    seen = set()
    for second in range(130):
        clock.advance_ms(1_000)
        if not second % (COMMIT_MS // 1_000):
            consumed.add("T@g", 50, over_ms=COMMIT_MS)
        consumed.tick()
        seen.add(consumed.rate("T@g"))
    assert seen == {10.0}
    clock.advance_ms(SPAN_MS // 2)
    assert 3 < consumed.rate("T@g") < 9


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = ManualClock()
    consumed = Consumed(clock)

    def run(seconds: int, a_second: int) -> None:
        for _ in range(seconds):
            if a_second:
                consumed.add("T@g", a_second)
            clock.advance_ms(1_000)
            consumed.tick()

    run(5, 10)
    assert consumed.rate("T@g") == 10
    run(115, 10)
    assert consumed.rate("T@g") == 10
    run(30, 0)
    assert consumed.rate("T@g") == 5
    run(SPAN_MS // 1_000 + 20, 0)
    assert consumed.rate("T@g") == 0
    assert consumed.counts["T@g"] == 1_200
    consumed.forget("T@g")
    assert (consumed.rate("T@g"), consumed.counts) == (0, {})
