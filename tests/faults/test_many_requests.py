"""Many clients, groups, members and requests hold up no other: see watched_broker for what is measured."""

import json
import socket
import struct
from pathlib import Path

import pytest

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, encode
from tests.broker.serving import Peer
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms
from tests.kit.waiting import until_async

CODE = RequestCode
# Until a crowd has been served.
PATIENCE_MS = 300_000


async def heartbeat(peer: Peer, consumers: list[dict[str, object]]) -> None:
    body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": []}
    await peer.ask(CODE.HEART_BEAT, {}, json.dumps(body).encode())


def consumer(group: str, subscriptions: list[dict[str, object]]) -> dict[str, object]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }


def asked(topic: str, text: str = "*", kind: str = "TAG") -> dict[str, object]:
    return {
        "topic": topic,
        "subString": text,
        "expressionType": kind,
        "subVersion": 1,
        "tagsSet": [],
        "codeSet": [],
        "classFilterMode": False,
    }


async def heartbeat_with_1000_subscriptions(broker: Watched, peer: Peer) -> None:
    for count in (1_000, 10_000):
        await heartbeat(peer, [consumer("g", [asked(f"topic{n}") for n in range(count)])])
    await heartbeat(peer, [consumer("g", [asked("other")])])


async def heartbeat_with_500_new_groups(broker: Watched, peer: Peer) -> None:
    await heartbeat(peer, [consumer(f"g{n}", [asked("T")]) for n in range(500)])


async def heartbeat_with_many_producers(broker: Watched, peer: Peer) -> None:
    for count in (10_000, 20_000):
        body = {"clientID": "c", "producerDataSet": [{"groupName": f"p{n}"} for n in range(count)]}
        await peer.ask(CODE.HEART_BEAT, {}, json.dumps(body).encode())


async def heartbeat_with_costly_filters(broker: Watched, peer: Peer) -> None:
    text = " OR ".join(["a=1"] * 500)
    for count in (15, 50):
        subscriptions = [asked(f"topic{n}", f"{text} OR b={n}", "SQL92") for n in range(count)]
        await heartbeat(peer, [consumer("g", subscriptions)])


async def lock_many_queues(broker: Watched, peer: Peer) -> None:
    for count in (4_000, 50_000):
        queues = [{"topic": f"t{n}", "brokerName": "b", "queueId": 0} for n in range(count)]
        body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
        await peer.ask(CODE.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
        await peer.ask(CODE.LOCK_BATCH_MQ, {}, json.dumps({**body, "clientId": "d"}).encode())
        await peer.ask(CODE.UNLOCK_BATCH_MQ, {}, json.dumps(body).encode())


async def ack_many_receipts(broker: Watched, peer: Peer) -> None:
    ack = {"c": "g", "t": "T", "r": 0, "so": 0, "pt": 1, "it": 60_000, "rq": 0, "q": 0}
    for count, bits in ((2_500, "BQE="), (20, "/////" * 2_000)):
        acks = [{**ack, "so": n, "b": bits} for n in range(count)]
        body = json.dumps({"brokerName": "b", "acks": acks}).encode()
        await peer.ask(CODE.BATCH_ACK_MESSAGE, {}, body)


async def many_small_requests(broker: Watched, peer: Peer) -> None:
    frame = encode(RemotingCommand(9999, opaque=1))
    peer.writer.write(frame * 30_000)
    for _ in range(30_000):
        await peer.next()


async def many_costly_requests(broker: Watched, peer: Peer) -> None:
    count = 3_000
    opaques = [peer.send(CODE.GET_BROKER_RUNTIME_INFO) for _ in range(count)]
    for opaque in opaques:
        await peer.answer(opaque)


async def many_refused_sends(broker: Watched, peer: Peer) -> None:
    ext = {"a": "p", "b": "no topic!", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
    for _ in range(20_000):
        peer.send(CODE.SEND_MESSAGE_V2, {**ext, "i": ""})
    for _ in range(20_000):
        await peer.next()
    assert broker.log_path.read_text().count("send refused") <= 200


@pytest.mark.parametrize(
    "attack",
    [
        heartbeat_with_1000_subscriptions,
        heartbeat_with_500_new_groups,
        heartbeat_with_many_producers,
        heartbeat_with_costly_filters,
        lock_many_queues,
        ack_many_receipts,
        many_small_requests,
        many_costly_requests,
        many_refused_sends,
    ],
    ids=lambda attack: attack.__name__,
)
async def test_others_are_answered_meanwhile(attack: Attack, tmp_path: Path) -> None:
    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX


@pytest.mark.parametrize(("loop", "is_reset"), [("uvloop", False), ("asyncio", True)])
async def test_others_are_answered_while_a_crowd_closes_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, loop: str, is_reset: bool
) -> None:
    """Members of one group, each a producer of its own group too: 8,000 with --crowd 8000."""
    count = int(request.config.getoption("--crowd"))

    async def attack(broker: Watched, peer: Peer) -> None:
        peers = [await Peer.at(broker) for _ in range(count)]
        beats = [
            each.send_heartbeat("crowd", {"T": "*"}, client_id=f"c{number}", producer=f"p{number}")
            for number, each in enumerate(peers)
        ]
        for each, opaque in zip(peers, beats, strict=True):
            await each.answer(opaque, PATIENCE_MS)
        await peer.heartbeat("crowd", {"T": "*"}, client_id="watcher")
        # Clients that come at once are served one after the other: that is not measured.
        await broker.worst_turn_ms()
        for each in peers:
            if is_reset:
                each.writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            each.writer.transport.abort()

        async def alone() -> bool:
            asks = peer.send(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "crowd"})
            answer = await peer.answer(asks, PATIENCE_MS)
            return len(json.loads(bytes(answer.body))["consumerIdList"]) == 1

        await until_async(alone)

    assert await longest_turn_ms(tmp_path, attack, loop=loop) < TURN_MS_MAX
