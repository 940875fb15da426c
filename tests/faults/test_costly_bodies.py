"""Bodies that cost much to read hold up no other client: see watched_broker for what is measured."""

from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import Peer
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms

CODE = RequestCode


async def fastjson_dialect(broker: Watched, peer: Peer) -> None:
    for member in (b"{0:1},", b"{{'a':1}:1},", b"1,", b"'a',"):
        for count in (30_000, 150_000):
            await peer.ask(CODE.HEART_BEAT, {}, b"{'a':[" + member * (count // len(member)) + b"]}")


async def deep_json(broker: Watched, peer: Peer) -> None:
    for text in (b"[" * 500_000, b"{0:" * 100_000, b"[" * 900 + b"]" * 900, b"'" * 30_000):
        await peer.ask(CODE.HEART_BEAT, {}, text)


async def large_json(broker: Watched, peer: Peer) -> None:
    for count in (170_000, 5_000_000):
        await peer.ask(CODE.HEART_BEAT, {}, b'{"a":[' + b"{}," * count + b"1]}")
        await peer.ask(CODE.HEART_BEAT, {}, b'{"a":[' + b"[]," * count + b"1]}")


async def many_header_fields(broker: Watched, peer: Peer) -> None:
    for count in (4_000, 200_000):
        fields = {f"f{n}": "v" for n in range(count)}
        for encoding in (0, 1):
            async with await Peer.at(broker) as one:
                one.send(CODE.GET_MAX_OFFSET, {"topic": "T", **fields}, encoding=encoding)
                one.send(CODE.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
                if count == 4_000:
                    assert (await one.next()).is_response
                else:
                    assert await one.ended()


@pytest.mark.parametrize(
    "attack",
    [fastjson_dialect, deep_json, large_json, many_header_fields],
    ids=lambda attack: attack.__name__,
)
async def test_others_are_answered_meanwhile(attack: Attack, tmp_path: Path) -> None:
    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX
