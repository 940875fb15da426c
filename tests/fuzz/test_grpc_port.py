"""R12: recorded conversations of the SDKs, mutated frame by frame: the port answers or closes.

And the next client is served.
"""

import asyncio
import contextlib
import logging
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.grpc.config import GrpcConfig
from pocketmq.grpc.http2.frames import HEAD_SIZE, PREFACE, FrameType
from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import Code
from pocketmq.grpc.server import GrpcServer
from pocketmq.remoting.codes import ResponseCode
from tests.broker.serving import Peer, serving
from tests.fuzz.targets import RECORDED
from tests.fuzz.test_servers import SEED, mutated
from tests.grpc.asking import asking
from tests.grpc.floods import frame

_AT_ONCE = 8
_PREFIX_SIZE = 5
_END = b"the end!"
Frame = tuple[int, int, int, bytes]


def frames(stream: bytes) -> Iterator[Frame]:
    """Kind, flags, stream and payload of each, behind the preface."""
    at = len(PREFACE)
    while at < len(stream):
        word, flags, stream_id = struct.unpack_from(">IBI", stream, at)
        at += HEAD_SIZE
        yield word & 0xFF, flags, stream_id, stream[at : at + (word >> 8)]
        at += word >> 8


def changed(conversation: list[Frame], chance: random.Random) -> bytes:
    """One or two of its frames are others, with lengths that are right again."""
    found = list(conversation)
    for _ in range(chance.randint(1, 2)):
        place = chance.randrange(len(found))
        kind, flags, stream_id, payload = found[place]
        is_call = kind == FrameType.DATA and len(payload) >= _PREFIX_SIZE
        inner = payload[_PREFIX_SIZE:] if is_call else payload
        [inner] = mutated([inner], 1, chance)
        if is_call:
            inner = b"\0" + len(inner).to_bytes(4, "big") + inner
        found[place] = kind, flags, stream_id, inner[:16_384]
    return PREFACE + b"".join(
        frame(kind, payload, flags=flags, stream_id=stream_id)
        for kind, flags, stream_id, payload in found
    )


async def attack(address: str, data: bytes) -> None:
    """It is answered, as the ping behind it is, or the connection was closed."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        writer.write(data + frame(FrameType.PING, _END))
        await reader.readuntil(_END)
    writer.close()


async def test_the_grpc_port_answers_or_closes(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """No bug is logged, and both ports serve on."""
    chance = random.Random(SEED)
    conversations = [list(frames(each)) for each in RECORDED]
    examples = int(request.config.getoption("--fuzz-examples"))
    streams = [changed(chance.choice(conversations), chance) for _ in range(examples)]
    caplog.set_level(logging.ERROR)
    async with (
        serving(tmp_path / "store") as broker,
        GrpcServer(broker, GrpcConfig(port=0)) as server,
    ):
        for at in range(0, len(streams), _AT_ONCE):
            some = streams[at : at + _AT_ONCE]
            await asyncio.gather(*(attack(server.address, each) for each in some))
        async with asking(server.address) as client, await Peer.at(broker) as good:
            asked = classes["QueryRouteRequest"](topic={"name": "Nowhere"})
            answer = await client.ask("QueryRoute", asked)
            assert answer.status.code == Code.TOPIC_NOT_FOUND
            assert (await good.produce("Good", b"after")).code == ResponseCode.SUCCESS
    bugs = [record for record in caplog.records if record.exc_info]
    assert not bugs, (bugs[0].getMessage(), bugs[0].exc_info)
