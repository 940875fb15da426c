"""Messages and queries that cost much hold up no other client: see watched_broker for what is measured."""

import struct
from pathlib import Path
from typing import Any

import pytest

from pocketmq.model.message_codec import properties_to_text
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.serving import Peer, batch
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms

CODE = RequestCode


async def huge_batch(broker: Watched, peer: Peer) -> None:
    body = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
    for count in (8_192, 180_000):
        answer = await peer.produce(
            "T", body * count, code=CODE.SEND_BATCH_MESSAGE, more={"m": True}
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def many_properties(broker: Watched, peer: Peer) -> None:
    properties = {f"p{n}": "1" for n in range(4_000)}
    text = properties_to_text(properties)
    for _ in range(3):
        await peer.produce("T", b"x", more={"i": text})
    await peer.produce("T", b"x", more={"i": f"{text}DELAY\x011\x02"})


async def many_properties_that_are_no_pairs(broker: Watched, peer: Peer) -> None:
    for text in ("\x01" * 32_000, "\x02" * 32_000, "WAIT\x01" * 5_000, "\x01\x02" * 16_000):
        await peer.produce("T", b"x", more={"i": text})
        await peer.produce("T", b"x", more={"i": text + "DELAY\x011"})


async def query_for_everything(broker: Watched, peer: Peer) -> None:
    body = batch(*[(b"x" * 100, b"KEYS\x01k\x02")] * 1_000)
    for _ in range(4):
        await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE, more={"m": True})
    await broker.worst_turn_ms()
    ext = {"topic": "T", "key": "k", "maxNum": 2**31 - 1, "beginTimestamp": 0}
    await peer.ask(CODE.QUERY_MESSAGE, {**ext, "endTimestamp": 2**62})


async def pull_many_small_messages(broker: Watched, peer: Peer) -> None:
    """A million would fit; what one answer holds is bounded in number and size."""
    body = batch(*[(b"", b"")] * 1_000)
    for _ in range(40):
        await peer.produce("T", body, code=CODE.SEND_BATCH_MESSAGE, more={"m": True})
    for tags in ("*", "a || b"):
        how: dict[str, Any] = {
            "subscription": tags,
            "maxMsgNums": 2**31 - 1,
            "maxMsgBytes": 2**31 - 1,
        }
        await peer.pull("g", "T", 0, sys_flag=4, **how)


async def many_topics(broker: Watched, peer: Peer) -> None:
    for number in range(300):
        await peer.produce(f"topic{number}")
    for code in (CODE.GET_ALL_TOPIC_CONFIG, CODE.GET_TOPIC_STATS_INFO):
        await peer.ask(code, {"topic": "topic1"})


@pytest.mark.parametrize(
    "attack",
    [
        huge_batch,
        many_properties,
        many_properties_that_are_no_pairs,
        query_for_everything,
        pull_many_small_messages,
        many_topics,
    ],
    ids=lambda attack: attack.__name__,
)
async def test_others_are_answered_meanwhile(attack: Attack, tmp_path: Path) -> None:
    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX
