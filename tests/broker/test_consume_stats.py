"""GET_CONSUME_STATS and its kin: how far a group has come, and what it holds (5.x: pullOffset, inflight)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, body_of, serving

COMMIT = 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Six messages in queue 0 of T."""
    async with serving(tmp_path, clock=ManualClock()) as made, await Peer.at(made) as peer:
        for n in range(6):
            await peer.produce("T", b"%d" % n)
        yield made


async def row(peer: Peer, *, version: int = 513) -> tuple[int, int, int | None]:
    """End of queue 0, the group's offset, its pull offset."""
    ext = {"consumerGroup": "g", "topic": "T"}
    answer = await peer.ask(RequestCode.GET_CONSUME_STATS, ext, version=version)
    for queue, each in body_of(answer)["offsetTable"].items():
        if queue.get("queueId") == 0:
            return each["brokerOffset"], each["consumerOffset"], each.get("pullOffset")
    raise AssertionError(answer.body)


async def inflight(peer: Peer) -> tuple[int, int]:
    """What the broker as a whole has in flight, and how far groups are behind."""
    ext = {"isOrder": False}
    answer = await peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, ext, version=513)
    body = body_of(answer)
    return body["totalInflightDiff"], body["totalDiff"]


async def test_what_a_member_has_pulled_and_not_committed_is_in_flight(broker: Broker) -> None:
    async with await Peer.at(broker) as peer:
        await peer.heartbeat("g", {"T": "*"})
        await peer.pull("g", "T", 0, sys_flag=COMMIT, commitOffset=0)
        assert await row(peer) == (6, 0, 6)
        assert await inflight(peer) == (6, 6)
        await peer.pull("g", "T", 6, sys_flag=COMMIT, commitOffset=4)
        assert await row(peer) == (6, 4, 6)
        assert await inflight(peer) == (2, 2)
        await peer.pull("g", "T", 6, sys_flag=COMMIT, commitOffset=6)
        assert await row(peer) == (6, 6, 6)
        assert await inflight(peer) == (0, 0)
        assert await row(peer, version=407) == (6, 6, None)


async def test_a_member_that_stopped_pulling_still_holds_what_it_has(broker: Broker) -> None:
    """A listener that hangs: the client pulls no more, and this is when an operator looks."""
    assert isinstance(broker.clock, ManualClock)
    async with await Peer.at(broker) as peer:
        await peer.heartbeat("g", {"T": "*"})
        await peer.pull("g", "T", 0, sys_flag=COMMIT, commitOffset=1)
        broker.clock.advance_ms(3_600_000)
        broker.parts.messages.deliveries.tick()
        assert await row(peer) == (6, 1, 6)


async def test_without_pulls_nothing_is_in_flight(broker: Broker) -> None:
    broker.parts.tables.offsets.place("g", "T", 0, 2)
    async with await Peer.at(broker) as peer:
        assert await row(peer) == (6, 2, 2)


async def test_pop_retries_count_in_the_progress_of_the_group(broker: Broker) -> None:
    """A broker of 5.5 shows the pop retry topic of a subscribed topic, which no member subscribes by name."""
    async with await Peer.at(broker) as peer:
        for topic in ("%RETRY%g_T", "U"):
            await peer.produce(topic, b"again")
            broker.parts.tables.offsets.place("g", topic, 0, 0)
        broker.parts.tables.offsets.place("g", "T", 0, 0)
        await peer.heartbeat("g", {"T": "*"})
        answer = await peer.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"}, version=513)
        topics = {queue.get("topic") for queue, _ in body_of(answer)["offsetTable"].items()}
        assert topics == {"T", "%RETRY%g_T"}
