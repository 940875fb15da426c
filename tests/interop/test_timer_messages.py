"""Delivery at a time and recall, by the official Java 5.5.0 client (issue 5 part 7)."""

import time
from pathlib import Path

import pytest
from tests.interop.brokers import PocketBroker, RunningBroker
from tests.interop.driver import PeerError, Received, Session, message
from tests.interop.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def early(received: Received) -> bool:
    return int(received.properties["TIMER_DEQUEUE_MS"]) < int(
        received.properties["TIMER_DELIVER_MS"]
    )


def test_messages_come_at_their_time_in_the_order_of_their_times(
    pocket_broker: RunningBroker, java_550: Session, topic: str, group: str
) -> None:
    producer = java_550.producer(pocket_broker.namesrv, f"{group}-p")
    producer.send(message(topic, "now"))
    begin = now_ms()
    for ahead in (4_000, 2_000, 1_000):
        at = {"TIMER_DELIVER_MS": str(begin + ahead)}
        producer.send(message(topic, str(ahead), tags="T", system=at), queue=0)
    consumer = java_550.push_consumer(pocket_broker.namesrv, group, topic, settings=FIRST)
    received = consumer.wait(4)
    assert [each.text for each in received] == ["now", "1000", "2000", "4000"]
    assert not any(early(each) for each in received[1:])
    assert now_ms() >= begin + 4_000


def test_a_recalled_message_does_not_come(
    pocket_broker: RunningBroker, java_550: Session, topic: str, group: str
) -> None:
    producer = java_550.producer(pocket_broker.namesrv, f"{group}-p")
    at = {"TIMER_DELIVER_MS": str(now_ms() + 3_000)}
    [doomed] = producer.send(message(topic, "doomed", system=at))
    producer.send(message(topic, "kept", system={"TIMER_DELIVER_MS": str(now_ms() + 4_500)}))
    assert doomed.recall_handle
    assert producer.recall(topic, doomed.recall_handle) == doomed.msg_id
    consumer = java_550.push_consumer(pocket_broker.namesrv, group, topic, settings=FIRST)
    assert [each.text for each in consumer.wait(1)] == ["kept"]
    with pytest.raises(PeerError) as refused:
        # Its time is over.
        producer.recall(topic, doomed.recall_handle)
    assert refused.value.code == 604


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
