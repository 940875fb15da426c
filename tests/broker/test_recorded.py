"""What official clients asked a real 4.9.7 broker is asked ours: the same answers, field by field.

The recordings are of one broker over its whole life, so queue offsets and ids are compared by how they
grow within a recording, and stored records by their size, which the real broker's ids give away.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from tests.broker.serving import Peer, serving
from tests.namesrv.recordings import Exchange, exchanges

SENDS = {10, 310, 320}
# What depends neither on messages of other recordings nor on the time of day.
JUDGED = SENDS | {15, 34, 35, 41, 42}
PRODUCE = [
    "b497-java498-produce",
    "b497-java498-rocketmqheader-produce",
    "b497-java550-produce",
    "b497-go212-produce",
    "b497-alions3120-produce",
    "b497-java498-autocreate",
    "b497-java498-tx",
]
GROUPS = [
    "b497-java498-orderly",
    "b497-java498-rebalance",
    "b497-java498-broadcast",
    "b497-go212-push",
    "b497-go212-orderly",
    "b497-alions3120-push",
]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path, broker_cluster_name="GoldenCluster") as running:
        for topic, queues in (("WtTopic", 4), ("WtOrder", 2), ("WtRetry", 1)):
            running.parts.tables.topics.update(TopicConfig(topic, queues, queues))
        yield running


async def ours(peer: Peer, exchange: Exchange) -> RemotingCommand | None:
    """Our answer to a recorded request, sent as it was; None when none was wanted."""
    peer.writer.write(encode(exchange.request))
    return None if exchange.answer is None else await peer.answer(exchange.request.opaque)


@pytest.mark.parametrize("name", PRODUCE)
async def test_sends_are_answered_as_by_the_real_broker(broker: Broker, name: str) -> None:
    """Code, remark, encoding, fields, queue, offsets that grow alike; ids of as many messages."""
    compared = 0
    first: dict[str, tuple[int, int]] = {}
    async with await Peer.at(broker) as peer:
        for exchange in exchanges(name, "broker"):
            if exchange.request.code not in SENDS:
                continue
            answer, real = await ours(peer, exchange), exchange.answer
            if answer is None or real is None:
                continue
            assert (answer.code, answer.remark, answer.encoding) == (
                real.code,
                real.remark,
                real.encoding,
            ), exchange.name
            assert answer.ext is not None
            assert real.ext is not None
            assert answer.ext.keys() == real.ext.keys(), exchange.name
            for field in ("queueId", "MSG_REGION", "TRACE_ON"):
                assert answer.ext[field] == real.ext[field], exchange.name
            assert answer.ext["msgId"].count(",") == real.ext["msgId"].count(",")
            where = _stored_topic(broker, answer)
            offsets = int(answer.ext["queueOffset"]), int(real.ext["queueOffset"])
            base = first.setdefault(where, offsets)
            assert offsets[0] - base[0] == offsets[1] - base[1], exchange.name
            compared += 1
    assert compared >= 2


def _stored_topic(broker: Broker, answer: RemotingCommand) -> str:
    """Topic and queue that a message was really stored in (delayed and half ones are elsewhere)."""
    from pocketmq.model.record import read_record

    assert answer.ext is not None
    found = broker.parts.messages.store.record_at(
        parse_offset_msg_id(answer.ext["msgId"].split(",")[0])[1]
    )
    assert found is not None
    record = read_record(found)
    return f"{record.topic}@{record.queue_id}"


async def test_a_plain_record_is_as_large_as_the_real_brokers(broker: Broker) -> None:
    """4.9 drops WAIT, adds CLUSTER and leaves the last separator off: sizes agree to the byte."""
    sends = [
        exchange
        for exchange in exchanges("b497-java498-produce", "broker")
        if exchange.request.code == RequestCode.SEND_MESSAGE_V2 and exchange.answer is not None
    ]
    compared = 0
    async with await Peer.at(broker) as peer:
        before: tuple[int, int] | None = None
        for exchange in sends[:6]:
            answer, real = await ours(peer, exchange), exchange.answer
            assert answer is not None
            assert real is not None
            now = _position(answer), _position(real)
            if before is not None:
                assert now[0] - before[0] == now[1] - before[1], exchange.name
                compared += 1
            before = now
    assert compared == 5


def _position(answer: RemotingCommand) -> int:
    assert answer.ext is not None
    return parse_offset_msg_id(answer.ext["msgId"])[1]


@pytest.mark.parametrize("name", GROUPS)
async def test_members_are_answered_as_by_the_real_broker(broker: Broker, name: str) -> None:
    """Heartbeats, good-byes, offsets and locks: code, remark, fields and body."""
    compared = 0
    async with await Peer.at(broker) as peer:
        for exchange in exchanges(name, "broker"):
            if exchange.request.code not in JUDGED - SENDS:
                continue
            answer, real = await ours(peer, exchange), exchange.answer
            if answer is None or real is None:
                continue
            assert (answer.code, answer.remark, answer.ext) == (real.code, real.remark, real.ext), (
                exchange.name
            )
            if exchange.request.code == RequestCode.LOCK_BATCH_MQ:
                assert _locked(answer) == _locked(real), exchange.name
            else:
                assert bytes(answer.body) == bytes(real.body), exchange.name
            compared += 1
    assert compared >= 5


def _locked(answer: RemotingCommand) -> list[str]:
    from pocketmq.remoting import fastjson

    return sorted(str(queue) for queue in fastjson.loads(answer.body)["lockOKMQSet"])


def test_the_recordings_decode_as_they_encode() -> None:
    """A request that is sent again is the request that was recorded."""
    for exchange in exchanges("b497-java498-produce", "broker"):
        assert decode(encode(exchange.request)[4:]) == exchange.request
