"""Requests that wait in great numbers hold up no other client: see watched_broker for what is measured."""

from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.serving import Peer
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms

CODE = RequestCode


async def sync(peer: Peer) -> int:
    """Wait until all that was sent before is handled; returns how many pulls were refused meanwhile."""
    refused = 0
    last = peer.send(CODE.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    while (answer := await peer.next()).opaque != last:
        refused += answer.code == ResponseCode.SYSTEM_BUSY
    return refused


async def parked_pulls(broker: Watched, peer: Peer) -> None:
    """60,000 on one queue: most are refused, the others wait and are woken in slices."""
    await peer.bodies("g", "T")
    refused = 0
    for _ in range(60):
        for _ in range(1_000):
            peer.send_pull("g", "T", 1, sys_flag=6, subscription="*", suspendTimeoutMillis=60_000)
        refused += await sync(peer)
    assert refused == 60_000 - 4_096
    async with await Peer.at(broker) as other:
        for _ in range(3):
            assert (await other.produce("T", b"wake")).code == ResponseCode.SUCCESS
    for _ in range(4_096):
        assert (await peer.next()).code == ResponseCode.SUCCESS


async def parked_pulls_with_costly_filters(broker: Watched, peer: Peer) -> None:
    """500 pulls whose filters cost 0.7 ms a look, and do not want what comes."""
    for number in range(500):
        text = " OR ".join(f"a={n}" for n in range(600)) + " " * number
        peer.send_pull(
            *("g", "T", 1),
            sys_flag=6,
            subscription=text,
            expressionType="SQL92",
            suspendTimeoutMillis=60_000,
        )
        if number % 50 == 0:
            await sync(peer)
    await sync(peer)
    async with await Peer.at(broker) as other:
        for _ in range(3):
            assert (await other.produce("T", b"wake", a="700")).code == ResponseCode.SUCCESS


async def parked_pops(broker: Watched, peer: Peer) -> None:
    """5,000 pops of one topic by groups of their own, for one message each."""
    for number in range(5_000):
        ext = {
            "consumerGroup": f"g{number}",
            "topic": "T",
            "queueId": -1,
            "maxMsgNums": 1,
            "invisibleTime": 60_000,
            "pollTime": 60_000,
            "bornTime": 1 << 42,
            "initMode": 1,
            "expType": "SQL92",
            "exp": " OR ".join(f"a={n}" for n in range(30)),
        }
        peer.send(CODE.POP_MESSAGE, ext)
        if number % 100 == 0:
            await sync(peer)
    await sync(peer)
    async with await Peer.at(broker) as other:
        for _ in range(3):
            assert (await other.produce("T", b"wake", a="700")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "attack",
    [parked_pulls, parked_pulls_with_costly_filters, parked_pops],
    ids=lambda attack: attack.__name__,
)
async def test_others_are_answered_meanwhile(attack: Attack, tmp_path: Path) -> None:
    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX
