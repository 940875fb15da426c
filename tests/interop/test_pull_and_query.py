"""Pull consumers, lite pull consumers and look-ups of the official Java clients."""

import time

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import PeerError, Queue, Session, message
from tests.kit.waiting import until

ONE_OF_EACH_VERSION = pytest.mark.parametrize(
    "java_client", ["4.9.8-ROCKETMQ", "5.5.0-JSON"], indirect=True
)


def test_a_pull_answers_each_kind_of_offset(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S46, S80: found, filtered, nothing new, behind the queue, with the next offset."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}", tags="AB"[i % 2]) for i in range(10)))
    puller = java_client.pull_consumer(broker.namesrv, group)
    [queue] = puller.queues(topic)
    assert queue == Queue(topic, broker.broker_name, 0)

    all_ = puller.pull(queue, 0)
    assert (all_.status, all_.next, all_.min, all_.max) == ("FOUND", 10, 0, 10)
    assert [each.text for each in all_.messages] == [f"m{i}" for i in range(10)]
    some = puller.pull(queue, 4, count=3)
    assert (some.status, some.next) == ("FOUND", 7)
    assert [each.offset for each in some.messages] == [4, 5, 6]
    tagged = puller.pull(queue, 0, expression="B")
    assert [each.text for each in tagged.messages] == ["m1", "m3", "m5", "m7", "m9"]
    assert tagged.next == 10
    none = puller.pull(queue, 3, expression="C")
    assert (none.status, none.next, none.messages) == ("NO_MATCHED_MSG", 10, [])
    end = puller.pull(queue, 10)
    assert (end.status, end.next) == ("NO_NEW_MSG", 10)
    behind = puller.pull(queue, 11)
    assert (behind.status, behind.next) == ("OFFSET_ILLEGAL", 10)


@ONE_OF_EACH_VERSION
def test_a_blocking_pull_waits_for_a_message(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Long polling: the pull is answered by the message that arrives meanwhile."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(message(topic, "before"))
    puller = java_client.pull_consumer(broker.namesrv, group)
    [queue] = puller.queues(topic)
    driver = java_client.driver
    waiting = driver.begin("pull", consumer=puller.name, offset=1, block=True, **queue.json())
    # The other pull travels the same connection behind the waiting one: it must not wait, too.
    assert puller.pull(queue, 0).status == "FOUND"
    began = time.monotonic()
    producer.send(message(topic, "meanwhile"))
    answer = driver.finish(waiting)
    assert answer["status"] == "FOUND"
    assert answer["next"] == 2
    assert time.monotonic() - began < 10, "the pull was not woken by the message"


@ONE_OF_EACH_VERSION
def test_offsets_of_a_pull_consumer_are_kept_by_the_broker(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Codes 14 and 15: any offset is taken, also a smaller one; groups do not see each other's."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(10)))
    puller = java_client.pull_consumer(broker.namesrv, group)
    [queue] = puller.queues(topic)
    puller.commit(queue, 7)
    until(lambda: puller.offset(queue) == 7, "the committed offset")
    puller.commit(queue, 3)
    until(lambda: puller.offset(queue) == 3, "the smaller offset")
    other = java_client.pull_consumer(broker.namesrv, group + "-other")
    # The queue is young, so a group without an offset is told to begin at 0 (wire.md 3.5).
    assert other.offset(queue) == 0


@ONE_OF_EACH_VERSION
def test_numbers_of_a_queue_and_offsets_by_time(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Codes 29 to 32: min, max, earliest store time; the offset of a time, before and after all."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    queue = Queue(topic, broker.broker_name, 0)
    empty = producer.queue_numbers(queue)
    assert (empty["min"], empty["max"], empty["earliest_ms"]) == (0, 0, -1)
    for number in range(5):
        producer.send(message(topic, f"m{number}"))
        time.sleep(0.02)  # store times that differ
    puller = java_client.pull_consumer(broker.namesrv, group)
    stored = [each.store_ms for each in puller.pull(queue, 0).messages]
    numbers = producer.queue_numbers(queue)
    assert numbers == {"min": 0, "max": 5, "earliest_ms": stored[0]}
    assert len(set(stored)) == 5
    for offset, ms in enumerate(stored):
        assert producer.search_offset(queue, ms) == offset
    assert producer.search_offset(queue, stored[0] - 60_000) == 0
    # Behind all messages RocketMQ 4.9 gives the last one. Client 5 sends boundaryType=LOWER, by
    # which RocketMQ 5 gives the end of the queue, and so do we.
    knows_boundary = broker.kind == "pocketmq" and java_client.driver.name.startswith("java-5")
    behind = producer.search_offset(queue, stored[-1] + 60_000)
    assert behind == (5 if knows_boundary else 4)


def test_messages_are_found_by_key_and_by_id(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """Codes 12 and 33: several keys, one key of many messages, unique key, offset id."""
    producer = java_client.producer(broker.namesrv, group)
    results = producer.send(
        *(message(topic, f"m{i}", keys=f"order{i} all") for i in range(5)),
        message(topic, "other", keys="order"),
    )
    found = until(
        lambda: producer.query_key(topic, "order3"), "the key in the index", ignoring=PeerError
    )
    assert [each.text for each in found] == ["m3"]
    many = until(
        lambda: [m for m in [producer.query_key(topic, "all")] if len(m) == 5], "all five"
    )[0]
    assert sorted(each.text for each in many) == [f"m{i}" for i in range(5)]
    assert [each.text for each in producer.query_key(topic, "order")] == ["other"]
    assert len(producer.query_key(topic, "all", count=2)) == 2
    by_offset_id = producer.view(topic, results[2].offset_msg_id)
    assert (by_offset_id.text, by_offset_id.keys) == ("m2", "order2 all")
    by_unique_key = producer.view(topic, results[2].msg_id)
    assert by_unique_key.offset_msg_id == results[2].offset_msg_id
    with pytest.raises(PeerError) as nothing:
        producer.query_key(topic, "no such key")
    assert nothing.value.kind == "MQClientException"
    assert nothing.value.code == 208


@ONE_OF_EACH_VERSION
def test_a_lite_pull_consumer_subscribes_seeks_and_commits(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S43: lite pull (code 11 of 4.x, 361 of 5.x) with rebalance, and with assigned queues."""
    if broker.kind == "rocketmq" and java_client.driver.name.startswith("java-5"):
        pytest.skip("RocketMQ 4.9.7 does not know code 361, by which client 5 lite-pulls")
    make_topic(broker, topic, queues=2)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}", tags="AB"[i // 2 % 2]) for i in range(12)))
    first = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "autoCommit": False}
    subscriber = java_client.lite_consumer(broker.namesrv, group, {topic: "A"}, settings=first)
    assert {each.tags for each in subscriber.poll_until(6)} == {"A"}
    subscriber.commit()
    subscriber.close()

    reader = java_client.lite_consumer(broker.namesrv, group + "-r", settings=first)
    queues = reader.queues(topic)
    reader.assign(queues[:1])
    got = reader.poll_until(6)
    assert [each.offset for each in got] == list(range(6))
    assert {each.queue for each in got} == {queues[0].queue}
    reader.seek(queues[0], 4)
    assert [each.offset for each in reader.poll_until(2)][-2:] == [4, 5]
    reader.commit()
    until(lambda: reader.committed(queues[0]) == 6, "the committed offset")
    at = reader.offset_for(queues[0], got[3].store_ms)
    assert got[at].store_ms == got[3].store_ms


@ONE_OF_EACH_VERSION
def test_sql92_selects_by_properties(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S78: push (compiled at the broker, codes 34 and 46) and pull (sent along); bad text is refused."""
    make_topic(broker, topic)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(
        *(
            message(topic, f"m{i}", tags="T", properties={"a": str(i), "c": "xy"[i % 2]})
            for i in range(10)
        )
    )
    sql = "(a BETWEEN 3 AND 7) AND c = 'x' AND TAGS IS NOT NULL"
    consumer = java_client.push_consumer(
        broker.namesrv,
        group,
        [{"topic": topic, "expression": sql, "type": "SQL92"}],
        settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
    )
    assert sorted(each.text for each in consumer.wait(2)) == ["m4", "m6"]
    producer.send(message(topic, "later", tags="T", properties={"a": "5", "c": "x"}))
    assert consumer.wait(3)[-1].text == "later"

    puller = java_client.pull_consumer(broker.namesrv, group + "-q")

    def selected() -> list[str]:
        return [
            each.text
            for queue in puller.queues(topic)
            for each in puller.pull(queue, 0, expression="a > 7", sql=True).messages
        ]

    # A client sends SQL only to brokers whose heartbeat answer has told it their version.
    found = until(selected, "a pull with SQL", ignoring=PeerError)
    assert sorted(found) == ["m8", "m9"]

    with pytest.raises(PeerError) as refused:
        java_client.push_consumer(
            broker.namesrv,
            group + "-bad",
            [{"topic": topic, "expression": "a > AND", "type": "SQL92"}],
        )
    assert refused.value.code == 23
