"""What the gRPC port is flooded with holds up no classic client: see watched_broker for what is measured."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.grpc.http2.frames import (
    PREFACE,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    Flag,
    FrameType,
    Setting,
    window_update,
)
from pocketmq.grpc.http2.frames import settings as settings_frame
from pocketmq.grpc.http2.hpack import encode
from pocketmq.grpc.messages import classes
from pocketmq.remoting.codes import ResponseCode
from tests.broker.serving import Peer
from tests.faults.watching import TURN_MS_MAX, Watched, longest_turn_ms, watched
from tests.grpc.floods import BLOCK, FLOODS, frame, request

# Enough to use up the credit of a connection; less of what costs much.
_COUNT, _COSTLY_COUNT = 10_500, 1_500
_AT_ONCE = 500
_GROWTH_MAX = 48 << 20


def _headers(name: bytes, content: bytes = b"application/grpc") -> bytes:
    return encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/apache.rocketmq.v2.MessagingService/" + name),
            (b"content-type", content),
            (b"x-mq-client-id", b"flood"),
        ]
    )


_SEND, _OTHER = _headers(b"SendMessage"), _headers(b"SendMessage", b"text/html")
_LONG = encode([(b"x-%d" % number, b"v" * 100) for number in range(150)])


def _call(number: int, message: bytes, headers: bytes = _SEND) -> bytes:
    data = b"\0" + len(message).to_bytes(4, "big") + message
    stream_id = 1 + 2 * number
    return request(stream_id, headers) + frame(FrameType.DATA, data, flags=1, stream_id=stream_id)


# Besides those that bring nothing: what is read whole, and is bad.
COSTLY: dict[str, Callable[[int], bytes]] = {
    "long headers": lambda number: request(1 + 2 * number, BLOCK + _LONG),
    "endless headers": lambda number: (
        request(flags=0) if not number else frame(FrameType.CONTINUATION, b"", stream_id=1)
    ),
    "no messages": lambda number: _call(number, b"\xff" * 300),
    "deep messages": lambda number: _call(number, b"\x0a\x7f" * 100),
    "half messages": lambda number: (
        request(1 + 2 * number, _SEND)
        + frame(FrameType.DATA, b"\0\0\xff\xff\xff" + b"x" * 8_000, stream_id=1 + 2 * number)
    ),
    "other content": lambda number: request(1 + 2 * number, _OTHER),
    "windows of half calls": lambda number: (
        request(1 + 2 * number, _SEND)
        if number < _AT_ONCE
        else settings_frame({Setting.INITIAL_WINDOW_SIZE: number})
    ),
}


async def _flood(address: str, part: Callable[[int], bytes], count: int) -> None:
    """So many parts, or until the broker has enough of them."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + settings_frame({}))
    drained = asyncio.get_running_loop().create_task(reader.read(-1))
    with contextlib.suppress(ConnectionError):
        for at in range(0, count, _AT_ONCE):
            writer.write(b"".join(part(number) for number in range(at, at + _AT_ONCE)))
            await writer.drain()
            if drained.done():
                break
    writer.close()
    with contextlib.suppress(ConnectionError):
        await drained


@pytest.mark.parametrize("floods", [FLOODS, COSTLY], ids=["nothing", "costly"])
async def test_classic_clients_are_answered_meanwhile(
    floods: dict[str, Callable[[int], bytes]], tmp_path: Path
) -> None:
    async def attack(broker: Watched, peer: Peer) -> None:
        # The first connection has what serves it imported, which is no turn of a flood.
        await _flood(broker.grpc_address, FLOODS["pings"], _AT_ONCE)
        await broker.worst_turn_ms()
        before = broker.rss
        for part in floods.values():
            count = _COUNT if floods is FLOODS else _COSTLY_COUNT
            await _flood(broker.grpc_address, part, count)
            assert (await peer.produce("T", b"meanwhile")).code == ResponseCode.SUCCESS
        assert broker.rss - before < _GROWTH_MAX

    assert await longest_turn_ms(tmp_path, attack) < TURN_MS_MAX


async def test_answers_are_not_made_for_who_does_not_read_them(tmp_path: Path) -> None:
    """Small requests for large answers, by a client that has opened its windows and does not read."""
    count = 64
    async with watched(tmp_path) as broker, await Peer.at(broker) as peer:
        assert (await peer.produce("T", b"x" * (1 << 20))).code == ResponseCode.SUCCESS
        await _flood(broker.grpc_address, FLOODS["pings"], _AT_ONCE)
        before = broker.peak
        host, _, port = broker.grpc_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        opening = settings_frame({Setting.INITIAL_WINDOW_SIZE: WINDOW_MAX})
        parts = [PREFACE, opening, window_update(0, WINDOW_MAX - WINDOW_DEFAULT)]
        for number in range(count):
            asked = classes["ReceiveMessageRequest"](
                group={"name": f"g{number}"},
                message_queue={"topic": {"name": "T"}},
                batch_size=32,
                invisible_duration={"seconds": 60},
            )
            parts.append(_call(number, asked.SerializeToString(), _headers(b"ReceiveMessage")))
        # One read of the broker's, so that it is not saved by reading no more.
        writer.write(b"".join(parts))
        # Each answer lies behind a turn of the broker, in which it might have served two frames more.
        for _ in range(2 * count):
            assert (await peer.produce("T", b"meanwhile")).code == ResponseCode.SUCCESS
        size, ended = 0, 0
        while ended < count:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            size += len(payload)
            ended += head[3] == FrameType.HEADERS and bool(head[4] & Flag.END_STREAM)
        assert broker.peak - before < _GROWTH_MAX // 2 < size
        writer.close()
