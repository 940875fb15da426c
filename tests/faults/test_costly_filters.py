"""Filters that cost much hold up no other client: see watched_broker for what is measured."""

from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer, batch
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms

CODE = RequestCode


async def own_filter(peer: Peer, text: str, *, count: int = 1) -> None:
    """Pulls that bring their own expression."""
    for number in range(count):
        own = text + " " * number
        await peer.pull("g", "T", 0, sys_flag=4, subscription=own, expressionType="SQL92")


async def comment_signs(broker: Watched, peer: Peer) -> None:
    await own_filter(peer, "a = " + "-" * 60_000 + "1")


async def many_ors(broker: Watched, peer: Peer) -> None:
    await own_filter(peer, " OR ".join(["a=1"] * 8_000))


async def many_texts(broker: Watched, peer: Peer) -> None:
    await own_filter(peer, "a IN (" + ",".join(f"'{n}'" for n in range(8_000)) + ")")


async def costly_filter_over_a_backlog(broker: Watched, peer: Peer) -> None:
    body = batch(*[(b"x", b"a\x011\x02")] * 1000)
    for _ in range(8):
        await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE, more={"m": True}, p="1")
    await broker.worst_turn_ms()
    await own_filter(peer, " OR ".join(f"a={n}" for n in range(2, 700)), count=3)


async def many_tags_over_a_backlog(broker: Watched, peer: Peer) -> None:
    body = batch(*[(b"x", b"TAGS\x01z\x02")] * 1000)
    for _ in range(30):
        await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE, more={"m": True}, p="1")
    await broker.worst_turn_ms()
    tags = "||".join(f"t{n}" for n in range(5_000))
    await peer.pull("g", "T", 0, sys_flag=4, subscription=tags)


@pytest.mark.parametrize(
    "attack",
    [
        comment_signs,
        many_ors,
        many_texts,
        costly_filter_over_a_backlog,
        many_tags_over_a_backlog,
    ],
    ids=lambda attack: attack.__name__,
)
async def test_others_are_answered_meanwhile(attack: Attack, tmp_path: Path) -> None:
    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX
