"""Delivery at a time and recall, by the official Java 5.5.0 client and by ours.

With --reference also at the real broker 5.5.0.
"""

import asyncio
import time
from pathlib import Path

import pytest

from pocketmq.admin import Admin
from pocketmq.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.client.errors import BrokerRefused
from tests.interop.brokers import PocketBroker, RunningBroker, make_broker
from tests.interop.conftest import Shared
from tests.interop.driver import PeerError, Received, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(
    scope="session",
    params=["pocketmq", pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference)],
)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    if request.param == "pocketmq":
        return shared.broker("pocketmq")
    # What PocketMQ allows by itself has to be allowed there.
    config = {"recallMessageEnable": "true"}
    place = shared.folder / "broker-recall"
    return shared.get(
        "broker-recall",
        lambda: make_broker(request.param, place, config=config).start(),
        lambda running: running.kill(),
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def early(received: Received) -> bool:
    return int(received.properties["TIMER_DEQUEUE_MS"]) < int(
        received.properties["TIMER_DELIVER_MS"]
    )


def test_messages_come_at_their_time_in_the_order_of_their_times(
    broker: RunningBroker, java_550: Session, topic: str, group: str
) -> None:
    producer = java_550.producer(broker.namesrv, f"{group}-p")
    producer.send(message(topic, "now"))
    begin = now_ms()
    for ahead in (4_000, 2_000, 1_000):
        at = {"TIMER_DELIVER_MS": str(begin + ahead)}
        producer.send(message(topic, str(ahead), tags="T", system=at), queue=0)
    consumer = java_550.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    # Threads of the consumer may overtake each other; the broker's time of storing tells the order.
    received = sorted(consumer.wait(4), key=lambda each: each.store_ms)
    assert [each.text for each in received] == ["now", "1000", "2000", "4000"]
    assert not any(early(each) for each in received[1:])
    assert now_ms() >= begin + 4_000


def test_a_recalled_message_does_not_come(
    broker: RunningBroker, java_550: Session, topic: str, group: str
) -> None:
    producer = java_550.producer(broker.namesrv, f"{group}-p")
    at = {"TIMER_DELIVER_MS": str(now_ms() + 3_000)}
    [doomed] = producer.send(message(topic, "doomed", system=at))
    producer.send(message(topic, "kept", system={"TIMER_DELIVER_MS": str(now_ms() + 4_500)}))
    assert doomed.recall_handle
    assert producer.recall(topic, doomed.recall_handle) == doomed.msg_id
    consumer = java_550.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    assert [each.text for each in consumer.wait(1)] == ["kept"]
    with pytest.raises(PeerError) as refused:
        # Its time is over.
        producer.recall(topic, doomed.recall_handle)
    assert refused.value.code == 604


async def test_our_client_names_a_time_takes_it_back_and_lists_what_waits(
    broker: RunningBroker, topic: str, group: str
) -> None:
    came: list[MessageExt] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        came.extend(messages)
        return ConsumeResult.SUCCESS

    async with (
        Producer(f"{group}-p", name_server=broker.namesrv) as producer,
        Admin(name_server=broker.namesrv) as admin,
    ):
        far = now_ms() + 3_600_000
        waits = await producer.send(Message(topic, b"far"), deliver_at_ms=far)
        doomed = await producer.send(Message(topic, b"doomed"), deliver_at_ms=now_ms() + 3_000)
        at = now_ms() + 4_000
        await producer.send(Message(topic, b"kept"), deliver_at_ms=at)
        assert doomed.recall_handle
        assert await producer.recall(topic, doomed.recall_handle) == doomed.msg_id
        consumer = PushConsumer(
            group,
            listener=listen,
            name_server=broker.namesrv,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        consumer.subscribe(topic)
        async with consumer:
            await asyncio.to_thread(until, lambda: bool(came), "the one that was kept")
        assert [each.body for each in came] == [b"kept"]
        assert int(came[0].properties["TIMER_DEQUEUE_MS"]) >= at
        with pytest.raises(BrokerRefused, match="timestamp invalid"):
            await producer.recall(topic, doomed.recall_handle)
        [delays] = await admin.delays.list(topic)
        assert delays.counts is not None
        assert delays.counts[topic] == 1
        if broker.kind == "pocketmq":
            assert delays.messages is not None
            [listed] = delays.messages
            assert (listed.msg_id, listed.topic) == (waits.msg_id, topic)
            assert abs(listed.deliver_ms - far) <= 1_000
            assert await producer.recall(topic, listed.recall_handle) == waits.msg_id


def test_what_waits_survives_kill_9_and_is_not_early(
    tmp_path: Path, java_550: Session, topic: str, group: str
) -> None:
    with PocketBroker(tmp_path / "b") as broker:
        producer = java_550.producer(broker.namesrv, f"{group}-p")
        begin = now_ms()
        sent = [f"m{number}" for number in range(30)]
        for number, text in enumerate(sent):
            at = {"TIMER_DELIVER_MS": str(begin + 1_000 + number * 200)}
            producer.send(message(topic, text, system=at))
        until(lambda: now_ms() > begin + 3_000, "some of them are due")
        broker.kill()
        broker.start()
        consumer = java_550.push_consumer(broker.namesrv, group, topic, settings=FIRST)
        until(lambda: {each.text for each in consumer.received} == set(sent), "all", within_s=90)
        assert not any(early(each) for each in consumer.received)
