"""Well-formed calls over gRPC that cost much hold up no other client: see `watching` for what is measured."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pocketmq.grpc.messages import classes
from pocketmq.grpc.schema import ClientType, FilterType
from pocketmq.remoting.codes import ResponseCode
from tests.broker.serving import Peer
from tests.faults.watching import TURN_MS_MAX, Attack, Watched, longest_turn_ms
from tests.grpc.asking import Asking, asking

_TOPICS = 4_900
_FRAME = 16_384


def _publishing(topics: Sequence[str]) -> Any:
    settings = classes["Settings"](client_type=ClientType.PRODUCER)
    for name in topics:
        settings.publishing.topics.add(name=name)
    return settings


def _subscribing(group: str, expressions: Sequence[tuple[str, str, int]]) -> Any:
    settings = classes["Settings"](client_type=ClientType.PUSH_CONSUMER)
    settings.subscription.group.name = group
    for topic, text, kind in expressions:
        settings.subscription.subscriptions.add(
            topic={"name": topic}, expression={"expression": text, "type": kind}
        )
    return settings


async def _warm(broker: Watched, client: Asking) -> None:
    """The first connection has what serves it imported, which is no turn of an attack."""
    await client.talk(_publishing(["T"]))
    await broker.worst_turn_ms()


async def _answered(client: Asking, settings: Any) -> None:
    command = classes["TelemetryCommand"](settings=settings)
    await _answered_to(client, "Telemetry", command.SerializeToString())


async def _answered_to(client: Asking, name: str, data: bytes) -> None:
    """Send one message of any size, and wait for the end of its call."""
    stream_id = client.begin(name)
    framed = b"\0" + len(data).to_bytes(4, "big") + data
    for begin in range(0, len(framed), _FRAME):
        await client.until(lambda: client.http2.local_flow_control_window(stream_id) >= _FRAME)
        last = begin + _FRAME >= len(framed)
        client.http2.send_data(stream_id, framed[begin : begin + _FRAME], end_stream=last)
        client.flush()
        if client.answers[stream_id].ended:
            return
    await client.end_of(stream_id)


async def _served(peer: Peer) -> None:
    for _ in range(3):
        assert (await peer.produce("T", b"meanwhile")).code == ResponseCode.SUCCESS


async def many_settings_in_one_frame(broker: Watched, peer: Peer) -> None:
    """Each of them is a heartbeat for all that its client produces to."""
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        await client.talk(_publishing([f"topic{number}" for number in range(_TOPICS)]))
        command = classes["TelemetryCommand"](settings=_publishing([]))
        command.settings.publishing.SetInParent()
        one = command.SerializeToString()
        framed = b"\0" + len(one).to_bytes(4, "big") + one
        stream_id = client.begin("Telemetry")
        client.http2.send_data(stream_id, framed * 100)
        client.flush()
        answer = client.answers[stream_id]
        await client.until(lambda: len(answer.messages) == 100)


async def many_filters_in_one_message(broker: Watched, peer: Peer) -> None:
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        text = " OR ".join(f"(a{number} = {number})" for number in range(300))
        asked = [
            (f"topic{number}", f"{text} OR b = {number}", int(FilterType.SQL))
            for number in range(100)
        ]
        answer = client.answers[
            client.begin(
                "Telemetry", classes["TelemetryCommand"](settings=_subscribing("g", asked))
            )
        ]
        await client.until(lambda: answer.messages or answer.ended)


async def many_subscriptions(broker: Watched, peer: Peer) -> None:
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        for number in range(30):
            asked = [(f"topic{each}", "*", int(FilterType.TAG)) for each in range(1_000)]
            settings = _subscribing(f"g{number}", asked)
            await _answered(client, settings)
        request = classes["HeartbeatRequest"](group={"name": "g0"})
        await client.ask("Heartbeat", request)


async def many_receipts(broker: Watched, peer: Peer) -> None:
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        ask = classes["AckMessageRequest"](group={"name": "g"}, topic={"name": "T"})
        for number in range(100_000):
            ask.entries.add(message_id="m", receipt_handle=f"{number} 1 60000 0 0 b 0 {number} 0")
        await _answered_to(client, "AckMessage", ask.SerializeToString())
        ask = classes["AckMessageRequest"](group={"name": "g"}, topic={"name": "T"})
        for _ in range(100_000):
            ask.entries.add(message_id="m", receipt_handle="x")
        await _answered_to(client, "AckMessage", ask.SerializeToString())


async def many_topics_to_walk(broker: Watched, peer: Peer) -> None:
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        settings = _publishing(["T"] * 500_000)
        await _answered(client, settings)


async def sends_of_empty_fields(broker: Watched, peer: Peer) -> None:
    """Two bytes each, in a message or beside it, and nothing that a topic would have to keep."""
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        empty = b"\x12\x00" * (1 << 20)
        for data in (
            b"\x0a\x00" * (2 << 20),
            b"\x0a" + _varint(len(empty)) + empty,
            b"\x0a" + _varint(len(empty) + 5) + b"\x1a" + _varint(len(empty)) + empty,
        ):
            await _answered_to(client, "SendMessage", data)


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes((low | 128,)) + _varint(high) if high else bytes((low,))


async def unread_receives(broker: Watched, peer: Peer) -> None:
    """Their messages are given back when the connection is lost."""
    async with asking(broker.grpc_address) as client:
        await _warm(broker, client)
        await client.talk(_publishing(["T"]))
        for number in range(100):
            messages = [
                {
                    "topic": {"name": "T"},
                    "body": b"x",
                    "system_properties": {"message_id": f"m{number}-{each}"},
                }
                for each in range(100)
            ]
            await client.ask("SendMessage", classes["SendMessageRequest"](messages=messages))
        await broker.worst_turn_ms()
        async with asking(broker.grpc_address, "deaf") as deaf:
            deaf.reads = False
            receive = classes["ReceiveMessageRequest"](
                group={"name": "g"},
                message_queue={"topic": {"name": "T"}},
                batch_size=32,
                invisible_duration={"seconds": 60},
            )
            await deaf.talk(_subscribing("g", [("T", "*", int(FilterType.TAG))]))
            deaf.http2.update_settings({4: 0})
            streams = [deaf.begin("ReceiveMessage", receive) for _ in range(320)]
            # The others find less than they asked for, or nothing yet.
            await deaf.until(
                lambda: sum(bool(deaf.answers[each].http_status) for each in streams) > 200
            )
            await _served(peer)
        await _served(peer)
        await asyncio.sleep(0.3)


@pytest.mark.parametrize(
    "attack",
    [
        many_settings_in_one_frame,
        many_filters_in_one_message,
        many_subscriptions,
        many_receipts,
        many_topics_to_walk,
        sends_of_empty_fields,
        unread_receives,
    ],
)
async def test_others_are_served_meanwhile(attack: Attack, tmp_path: Path) -> None:
    async def with_log(broker: Watched, peer: Peer) -> None:
        await attack(broker, peer)
        await _served(peer)

    worst = await longest_turn_ms(tmp_path, with_log)
    assert worst < TURN_MS_MAX
