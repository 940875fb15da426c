"""Pulls that are held: what wakes them, when they end, what they commit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.pulled import fill
from tests.broker.serving import Peer, records, serving
from tests.kit.waiting import until_async

CODE = RequestCode


HOLD = 2


OWN = 4  # sysFlag: the pull brings its expression


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
        running.parts.tables.topics.update(TopicConfig("T", 4, 4))
        yield running


async def test_a_held_pull_is_answered_by_the_next_message(broker: Broker, peer: Peer) -> None:
    """Not before, and other requests of the same connection are not held up by it."""
    opaque = peer.send_pull("g", "T", 0, sys_flag=OWN | HOLD, subscription="*")
    await until_async(lambda: broker.parts.services.long_polling.count == 1)
    await fill(peer, "a")
    answer = await peer.answer(opaque)
    assert [bytes(record.body) for record in records(answer)] == [b"0"]
    assert broker.parts.services.long_polling.count == 0


async def test_a_held_pull_is_not_woken_by_another_tag(broker: Broker, peer: Peer) -> None:
    await peer.heartbeat("g", {"T": "B"})
    opaque = peer.send_pull("g", "T", 0, sys_flag=HOLD)
    await until_async(lambda: broker.parts.services.long_polling.count == 1)
    await fill(peer, "A", "A")
    assert broker.parts.services.long_polling.count == 1
    await fill(peer, "B")
    answer = await peer.answer(opaque)
    assert [record.queue_offset for record in records(answer)] == [2]


async def test_a_held_sql_pull_is_woken_by_its_properties_only(broker: Broker, peer: Peer) -> None:
    await peer.heartbeat("g", {"T": "price > 3"}, expression_type="SQL92")
    opaque = peer.send_pull("g", "T", 0, sys_flag=HOLD)
    await until_async(lambda: broker.parts.services.long_polling.count == 1)
    await peer.produce("T", b"cheap", price="1")
    assert broker.parts.services.long_polling.count == 1
    await peer.produce("T", b"dear", price="9")
    assert [r.body for r in records(await peer.answer(opaque))] == [b"dear"]


async def test_messages_of_one_read_wake_a_pull_once(broker: Broker, peer: Peer) -> None:
    """Invariant 2 of long_polling.py: the answer holds all of them."""
    await fill(peer, "a")
    opaque = peer.send_pull("g", "T", 1, sys_flag=OWN | HOLD, subscription="*")
    await until_async(lambda: broker.parts.services.long_polling.count == 1)
    ext = {"a": "g", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "a\x01b"}
    async with await Peer.at(broker) as other:
        for place in range(5):
            other.send(CODE.SEND_MESSAGE_V2, ext, b"%d" % place)
        assert len(records(await peer.answer(opaque))) == 5


async def test_a_held_pull_ends_at_its_time(broker: Broker, peer: Peer) -> None:
    """19 at suspendTimeoutMillis."""
    began = broker.clock.monotonic_ms()
    answer = await peer.pull(
        "g", "T", 0, sys_flag=OWN | HOLD, subscription="*", suspendTimeoutMillis=300
    )
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert broker.clock.monotonic_ms() - began >= 300


async def test_without_long_polling_a_pull_is_held_for_the_short_time(
    broker: Broker, peer: Peer
) -> None:
    broker.config.long_polling_enable = False
    broker.config.short_polling_time_mills = 50
    answer = await peer.pull("g", "T", 0, sys_flag=OWN | HOLD, subscription="*")
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_only_what_may_come_later_is_held(broker: Broker, peer: Peer) -> None:
    """20 and 21 go out at once, with the flag too."""
    await fill(peer, "A")
    answer = await peer.pull("g", "T", 9, sys_flag=OWN | HOLD, subscription="*")
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    answer = await peer.pull("g", "T", 0, sys_flag=OWN | HOLD, subscription="B")
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_the_pulls_of_a_closed_connection_are_forgotten(broker: Broker) -> None:
    async with await Peer.at(broker) as peer:
        peer.send_pull("g", "T", 0, sys_flag=OWN | HOLD, subscription="*")
        await until_async(lambda: broker.parts.services.long_polling.count == 1)
    await until_async(lambda: broker.parts.services.long_polling.count == 0)


async def test_a_pull_commits_its_offset_even_when_it_is_held(broker: Broker, peer: Peer) -> None:
    """wire.md 3.4.9: with flag 1 and a value: below zero it is absent."""
    await fill(peer, "a", "b")
    await peer.pull("g", "T", 0, sys_flag=OWN | 1, subscription="*", commitOffset=1)
    assert broker.parts.tables.offsets.query("g", "T", 0) == 1
    peer.send_pull("g", "T", 2, sys_flag=OWN | HOLD | 1, subscription="*", commitOffset=2)
    await until_async(lambda: broker.parts.services.long_polling.count == 1)
    assert broker.parts.tables.offsets.query("g", "T", 0) == 2
    await peer.pull("g", "T", 0, sys_flag=OWN, subscription="*", commitOffset=0)
    await peer.pull("g", "T", 0, sys_flag=OWN | 1, subscription="*", commitOffset=-1)
    assert broker.parts.tables.offsets.query("g", "T", 0) == 2


async def test_a_refused_pull_commits_nothing(broker: Broker, peer: Peer) -> None:
    await peer.pull("g", "T", 0, sys_flag=1, commitOffset=7)
    assert broker.parts.tables.offsets.query("g", "T", 0) == -1
