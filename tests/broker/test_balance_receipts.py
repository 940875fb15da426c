"""The balance where the group's offset does not tell: orderly pops, and members that broadcast."""

from pathlib import Path
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import encode
from pocketmq.remoting.fastjson import ObjectKey
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.popping import Popper
from tests.broker.serving import Peer, body_of, records, serving
from tests.broker.test_balance import G, T, asker, books, broker, listed, send

__all__ = ["asker", "broker"]


async def test_an_orderly_pop_acknowledged_behind_another(broker: Broker, asker: Peer) -> None:
    await send(asker, *"AAAA")
    async with await Peer.at(broker) as peer:
        await peer.heartbeat(G, {T: "*"}, client_id="me")
        member = Popper(peer, broker.parts.node.clock.now_ms)
        got = await member.pop(order=True, queueId=0, maxMsgNums=3)
        assert [each.offset for each in got] == [0, 1, 2]
        await member.ack(got[1])
        assert await books(asker) == {"stored": 4, "consumed": 1, "inHand": 2, "waiting": 1}
        [row] = await listed(asker, "consumed")
        assert (row["first"], row["last"], row["member"]) == (1, 1, "me")
        await member.change(got[2], 1_000)
        await member.ack(got[0])
        assert await books(asker) == {"stored": 4, "consumed": 2, "inHand": 1, "waiting": 1}
        again: list[Any] = []
        while not again:
            again = await member.pop(order=True, queueId=0, pollTime=5_000)
        for each in again:
            await member.ack(each)
        assert await books(asker) == {"stored": 4, "consumed": 4}


async def told(asker: Peer, reports: dict[Peer, int]) -> dict[str, int]:
    """The books, while the members report these offsets of queue 0."""
    opaque = asker.send(PocketRequestCode.GET_GROUP_BALANCE, {"group": G})
    for member, offset in reports.items():
        request = await member.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
        queue = ObjectKey.of(brokerName="b", queueId=0, topic=T)
        table = {"mqTable": {queue: {"commitOffset": offset}}}
        member.writer.write(encode(request.answer(0, body=fastjson.dumps(table))))
    [row] = body_of(await asker.answer(opaque))["topics"]
    assert row.pop("difference") == 0
    return {name: count for name, count in row.items() if count and isinstance(count, int)}


async def test_members_that_broadcast_say_where_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        await send(asker, *"AABBA")
        async with await Peer.at(broker) as first, await Peer.at(broker) as second:
            for number, member in enumerate((first, second)):
                how = {"client_id": f"c{number}", "message_model": "BROADCASTING"}
                await member.heartbeat(G, {T: "*"}, **how)
                records(await member.pull(G, T, 0, maxMsgNums=4 - number))
            waiting = {"stored": 5, "waiting": 2}
            assert await told(asker, {first: -1, second: -1}) == {**waiting, "inHand": 3}
            assert await told(asker, {first: 3, second: 1}) == {
                **waiting,
                "consumed": 1,
                "inHand": 2,
            }
            records(await second.pull(G, T, 3))
            records(await first.pull(G, T, 4))
            # One that begins later has missed nothing.
            async with await Peer.at(broker) as third:
                await third.heartbeat(G, {T: "*"}, client_id="c3", message_model="BROADCASTING")
                assert (await third.pull(G, T, 5)).code == 19
                at = {first: 4, second: 5, third: 5}
                assert await told(asker, at) == {"stored": 5, "consumed": 4, "inHand": 1}
    async with serving(tmp_path) as broker, await Peer.at(broker) as asker:
        # All have left: what one of them has reported counts.
        assert await books(asker) == {"stored": 5, "consumed": 5}
