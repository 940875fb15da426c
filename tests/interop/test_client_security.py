"""Our client with TLS, and with bodies packed in each way, at our broker and at the real ones."""

import asyncio

import pytest
from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import Session
from tests.interop.test_client_send_and_consume import FIRST, FROM_FIRST

from pocketmq.admin import Admin
from pocketmq.client import (
    Compression,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullStatus,
    send_all,
)

PLAIN = "pocketmq"
JAVA = [
    pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
    pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
]


@pytest.fixture(scope="session", params=[PLAIN, *JAVA])
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """A broker as it comes: TLS is permissive, with a certificate that it has signed itself."""
    return shared.broker(request.param)


@pytest.mark.parametrize("java_client", ["5.5.0-JSON"], indirect=True)
async def test_everything_goes_through_tls(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Issue 4.5: TLS of sends in each way, consumers and admin; a Java client with TLS reads the same."""
    await asyncio.to_thread(make_topic, broker, topic)
    async with Producer(group, name_server=broker.namesrv, tls=True) as producer:
        await producer.send(Message(topic, bytes(1_000_000)))
        sent = await send_all(producer, (Message(topic, b"%d" % n) for n in range(200)))
        assert len({each.offset_msg_id for each in sent}) == 200
    consumer = LitePullConsumer(
        f"{group}-lite", name_server=broker.namesrv, tls=True, consume_from_where=FROM_FIRST
    )
    consumer.subscribe(topic)
    bodies: set[bytes] = set()
    async with consumer, asyncio.timeout(60):
        while len(bodies) < 201:
            bodies |= {each.body for each in await consumer.poll(1_000)}
    assert bytes(1_000_000) in bodies
    async with Admin(name_server=broker.namesrv, tls=True) as admin:
        assert sum(each.max_offset for each in await admin.topics.status(topic)) == 201

    def java() -> int:
        settings = {**FIRST, "useTLS": True}
        reader = java_client.push_consumer(broker.namesrv, group, topic, settings=settings)
        return len(reader.wait(201))

    assert await asyncio.to_thread(java) >= 201


@pytest.mark.parametrize("compression", list(Compression), ids=lambda each: each.name)
@pytest.mark.parametrize("java_client", ["5.5.0-JSON"], indirect=True)
async def test_a_packed_body_is_unpacked_by_both_clients(
    broker: RunningBroker,
    java_client: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
    compression: Compression,
) -> None:
    """Issue 4.5: ZLIB, LZ4 and ZSTD as the Java client of 5.x reads them; brokers only store them."""
    await asyncio.to_thread(make_topic, broker, topic, queues=1)
    text = f"{compression.name} " * 2_000
    async with Producer(group, name_server=broker.namesrv, compression=compression) as producer:
        sent = await producer.send(Message(topic, text.encode()))

    def java() -> str:
        reader = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
        return str(reader.wait(1)[0].text)

    assert await asyncio.to_thread(java) == text
    async with PullConsumer(f"{group}-pull", name_server=broker.namesrv) as consumer:
        result = await consumer.pull(sent.message_queue, 0)
        assert result.status is PullStatus.FOUND
        assert [each.body for each in result.messages] == [text.encode()]
