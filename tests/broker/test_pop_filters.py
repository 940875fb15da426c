"""Pops with a filter, behind many messages that do not match."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.record import encode_batch
from pocketmq.model.tables import TopicConfig
from tests.broker.popping import Popper, popped
from tests.broker.serving import Peer, serving
from tests.kit.waiting import until_async

TAG = {"exp": "two", "expType": "TAG"}
SQL = {"exp": "a = 2", "expType": "SQL92"}
# Neither is found by a single look at the queue.
MANY = {"TAG": 200_000, "SQL92": 12_000}


def _fill(broker: Broker, count: int, topic: str = "T", queue_id: int = 0) -> None:
    """Messages of another tag and property."""
    store = broker.parts.messages.store
    batch = encode_batch((0, b"x", b"a\x011\x02TAGS\x01one\x02") for _ in range(2_000))
    for _ in range(count // 2_000):
        store.append_batch(topic, queue_id, batch, b"", 0, 1, store.appends._store_host)


async def _wanted(peer: Peer, body: bytes = b"wanted", queue_id: int = 0) -> None:
    await peer.produce("T", body, queue_id=queue_id, a="2", TAGS="two")


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("by", [TAG, SQL], ids=["tag", "sql"])
async def test_one_pop_finds_what_matches_behind_many_others(
    tmp_path: Path, by: dict[str, Any], order: bool
) -> None:
    """Its time is over only after longer than the test may take: it looks on by itself."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        _fill(broker, MANY[by["expType"]])
        await _wanted(peer)
        popper = Popper(peer, broker.clock.now_ms)
        opaque = popper.send(pollTime=600_000, order=order, attemptId="x", **by)
        answer = await peer.answer(opaque)
        assert [message.body for message in popped(answer, "T", "g")] == [b"wanted"]


async def test_a_pop_that_has_seen_all_waits_for_what_comes(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 2, 2))
        for queue_id in range(2):
            _fill(broker, MANY["SQL92"], queue_id=queue_id)
        popper = Popper(peer, broker.clock.now_ms)
        opaque = popper.send(pollTime=600_000, **SQL)
        state = broker.parts.services.pop.log.state
        await until_async(lambda: sorted(state.reached.values()) == [MANY["SQL92"]] * 2)
        assert broker.parts.services.pop.polling.count == 1
        async with await Peer.at(broker) as producer:
            await _wanted(producer, queue_id=1)
        assert [each.body for each in popped(await peer.answer(opaque), "T", "g")] == [b"wanted"]


async def test_others_are_served_between_two_looks(tmp_path: Path) -> None:
    """Requests of others are answered while twenty pops look through a queue each."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        _fill(broker, MANY["SQL92"])
        poppers = [Popper(peer, broker.clock.now_ms, group=f"g{number}") for number in range(20)]
        for popper in poppers:
            popper.send(pollTime=600_000, **SQL)
        state = broker.parts.services.pop.log.state
        answered = 0
        async with await Peer.at(broker) as other:
            while len(state.reached) < 20 or min(state.reached.values()) < MANY["SQL92"]:
                await other.produce("Other", b"x")
                answered += 1
        # Twenty looks at most are between two turns of the loop.
        assert answered > 5


async def test_a_pop_that_may_not_wait_says_how_much_is_left(tmp_path: Path) -> None:
    """As in RocketMQ: one look; the next pop begins behind it."""
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        broker.parts.tables.topics.update(TopicConfig("T", 1, 1))
        _fill(broker, MANY["SQL92"])
        await _wanted(peer)
        popper = Popper(peer, broker.clock.now_ms)
        pops = 1
        while (answer := await popper.answer(**SQL)).code == 210:
            assert answer.ext is not None
            assert int(answer.ext["restNum"]) > 0
            pops += 1
        assert [each.body for each in popped(answer, "T", "g")] == [b"wanted"]
        assert pops > 1
