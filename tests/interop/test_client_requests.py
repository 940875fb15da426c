"""Requests and their answers between our client and the official Java client."""

import asyncio

import pytest

from pocketmq.client import (
    ConsumeContext,
    Message,
    MessageExt,
    Producer,
    reply_to,
)
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Session, message
from tests.interop.our_clients import push

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(
    scope="session",
    params=[
        "pocketmq",
        pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
        pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
    ],
)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """Our broker, and with --reference both real ones: the client is to work with each."""
    return shared.broker(request.param)


async def test_a_request_is_answered_by_a_consumer(
    broker: RunningBroker, make_topic: MakeTopic, producer: Producer, topic: str, group: str
) -> None:
    """Request-reply, ours on both ends."""
    await asyncio.to_thread(make_topic, broker, topic)

    async def replier(messages: list[MessageExt], context: ConsumeContext) -> None:
        for each in messages:
            await producer.send(reply_to(each, b"pong " + each.body))

    consumer = push(broker, group, replier)
    consumer.subscribe(topic)
    async with consumer:
        reply = await producer.request(Message(topic, b"ping"), timeout_ms=30_000)
        assert reply.body == b"pong ping"


async def test_java_answers_our_request_and_we_answer_javas(
    broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    producer: Producer,
    topic: str,
    group: str,
) -> None:
    """Request-reply with the official client on the other end, both ways."""
    await asyncio.to_thread(make_topic, broker, topic)
    other = f"{topic}-b"
    await asyncio.to_thread(make_topic, broker, other)

    async def replier(messages: list[MessageExt], context: ConsumeContext) -> None:
        for each in messages:
            await producer.send(reply_to(each, b"ours: " + each.body))

    consumer = push(broker, group, replier)
    consumer.subscribe(other)

    def java_replies() -> None:
        java_498.producer(broker.namesrv, f"{group}-jp", name=f"{group}-jp")
        java_498.push_consumer(
            broker.namesrv, f"{group}-j", topic, settings=FIRST, reply_by=f"{group}-jp"
        )

    await asyncio.to_thread(java_replies)
    reply = await producer.request(Message(topic, b"hello java"), timeout_ms=30_000)
    assert b"hello java" in reply.body
    async with consumer:

        def java_asks() -> bytes:
            asking = java_498.producer(broker.namesrv, f"{group}-ja")
            return asking.request(message(other, "hello python"), timeout_ms=30_000).body

        assert await asyncio.to_thread(java_asks) == b"ours: hello python"
