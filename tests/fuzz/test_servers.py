"""R12: whatever bytes come to a running server, it answers or closes, and the next client is served."""

import asyncio
import json
import logging
import random
import struct
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode
from tests.broker.serving import Peer, batch, serving
from tests.console.test_slow_clients import get, metrics_port

SEED = 20261122
_AT_ONCE = 8
HTTP = [
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"HEAD /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"GET /ready?x=1 HTTP/1.0\r\n\r\n",
]


def requests() -> list[bytes]:
    """A frame of each kind that clients send with a body, and of those with many fields."""
    queue = {"topic": "T", "brokerName": "b", "queueId": 0}
    asked = {"topic": "T", "subString": "a = 1", "expressionType": "SQL92", "subVersion": 1}
    consumer = {
        "groupName": "g",
        "subscriptionDataSet": [asked],
        "consumeType": "CONSUME_PASSIVELY",
    }
    ack = {"c": "g", "t": "T", "r": "0", "so": 0, "pt": 1, "it": 1, "rq": 0, "q": 0, "b": "BQE="}
    bodies = {
        RequestCode.HEART_BEAT: {
            "clientID": "c",
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "p"}],
        },
        RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [queue]},
        RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [queue]},
        RequestCode.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": "g", "subscriptionData": asked},
        RequestCode.BATCH_ACK_MESSAGE: {"brokerName": "b", "acks": [ack]},
    }
    frames = [
        encode(RemotingCommand(code, {}, json.dumps(body).encode(), opaque=1))
        for code, body in bodies.items()
    ]
    send = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    send |= {"i": "KEYS\x01k\x02TAGS\x01t\x02DELAY\x010\x02", "j": "0", "k": "false", "m": "false"}
    pull = {"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "sysFlag": "4"}
    pull |= {
        "maxMsgNums": "32",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }
    pull |= {"subscription": "a > 1 OR b = 'x'", "expressionType": "SQL92"}
    members = batch((b"x", b"TAGS\x01t\x02"), (b"y", b""))
    for encoding in (0, 1):
        for code, ext, body in (
            (RequestCode.SEND_MESSAGE_V2, send, b"body"),
            (RequestCode.SEND_BATCH_MESSAGE, {**send, "m": "true"}, members),
            (RequestCode.PULL_MESSAGE, pull, b""),
        ):
            frames.append(encode(RemotingCommand(code, ext, body, opaque=1, encoding=encoding)))
    return frames


def mutated(corpus: list[bytes], count: int, chance: random.Random | None = None) -> list[bytes]:
    """So many mutations, the same for the same seed; frames get the length that they have."""
    chance = chance or random.Random(SEED)
    pieces = [b"\0", b"\xff", b"\x01", b"\x02", b"{", b"[", b'"', b"--", b"null", b"-1", b"9" * 30]
    found = []
    for _ in range(count):
        data = bytearray(chance.choice(corpus))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(data) + 1)
            piece = chance.choice([*pieces, chance.randbytes(chance.randrange(4))])
            data[at : at + chance.choice((0, 0, 1, 1, 5, 20))] = piece * chance.choice((1, 1, 1, 9))
        found.append(bytes(data))
    return found


async def test_a_broker_answers_or_closes(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutated requests of every kind, with right lengths, so that handlers see them; no bug is logged."""
    examples = int(request.config.getoption("--fuzz-examples"))
    # Without the length word, which is written anew.
    bodies = mutated([frame[4:] for frame in requests()], examples)
    caplog.set_level(logging.ERROR)
    async with serving(tmp_path / "store") as broker:
        for at in range(0, len(bodies), _AT_ONCE):
            await asyncio.gather(*(attack(broker, each) for each in bodies[at : at + _AT_ONCE]))
        async with await Peer.at(broker) as good:
            assert (await good.produce("Good", b"after")).code == ResponseCode.SUCCESS
            assert await good.bodies("g", "Good") == [b"after"]
    bugs = [record for record in caplog.records if record.exc_info]
    assert not bugs, (bugs[0].getMessage(), bugs[0].exc_info)


async def attack(broker: Broker, body: bytes) -> None:
    """One mutated frame, and a sound one behind it: it is answered, or the connection was closed."""
    async with await Peer.at(broker) as peer:
        peer.writer.write(struct.pack(">I", len(body)) + body)
        sound = RemotingCommand(
            RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=99
        )
        try:
            peer.writer.write(encode(sound))
            await peer.answer(99)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass


async def test_the_metrics_port_answers_or_closes(request: pytest.FixtureRequest) -> None:
    examples = int(request.config.getoption("--fuzz-examples"))
    async with metrics_port() as port:
        for data in mutated(HTTP, examples):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.write_eof()
            try:
                answer = await reader.read()
            except ConnectionError:
                answer = b""
            assert not answer or answer.startswith(b"HTTP/1.1 ")
            writer.close()
        assert b" 200 " in await get(port)
