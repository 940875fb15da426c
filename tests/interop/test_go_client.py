"""The official Go client v2.1.2."""

import os

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import PeerError, Queue, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def test_go_sends_in_each_way_and_both_go_and_java_receive(
    broker: RunningBroker, go_client: Session, java_498: Session, topic: str, group: str
) -> None:
    """Codes 10 and 320 of the Go client; its one-way sends are not flagged as such."""
    producer = go_client.producer(broker.namesrv, group + "-p")
    [sync] = producer.send(
        message(topic, "sync", tags="A", keys="k1", flag=5, properties={"a": "b"})
    )
    asynchronous = producer.send_async(*(message(topic, f"async{i}") for i in range(10)))
    producer.send_oneway(message(topic, "oneway"))
    batch = producer.send_batch(*(message(topic, f"batch{i}") for i in range(5)))
    big = "compressed by the client " * 1_000
    producer.send(message(topic, big))
    assert {each.status for each in [sync, *asynchronous, batch]} == {"SEND_OK"}

    expected = ["sync", "oneway", big]
    expected += [f"async{i}" for i in range(10)] + [f"batch{i}" for i in range(5)]
    for client, name in ((go_client, "-go"), (java_498, "-java")):
        consumer = client.push_consumer(broker.namesrv, group + name, topic, settings=FIRST)
        received = consumer.wait(len(expected))
        assert sorted(each.text for each in received) == sorted(expected)
        one = next(each for each in received if each.text == "sync")
        assert (one.tags, one.keys, one.flag, one.properties["a"]) == ("A", "k1", 5, "b")
        assert (one.queue, one.offset, one.msg_id) == (sync.queue, sync.offset, sync.msg_id)


def test_a_go_and_a_java_member_share_a_group(
    broker: RunningBroker,
    go_client: Session,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """S15, S67: both allocate from the same list of ids; when one leaves, the other has it all."""
    make_topic(broker, topic)
    subscription = {topic: "A || B"}
    java = java_498.push_consumer(broker.namesrv, group, subscription, settings=FIRST)
    go = go_client.push_consumer(broker.namesrv, group, subscription, settings=FIRST)
    until(lambda: len([q for q in java.assigned() if q.topic == topic]) == 2, "two queues in Java")
    producer = go_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}", tags="ABC"[i % 3]) for i in range(36)))
    wanted = {f"m{i}" for i in range(36) if i % 3 < 2}
    until(lambda: {each.text for each in java.received + go.received} == wanted, "all of A and B")
    assert go.received
    assert java.received
    assert {q.queue for q in java.assigned() if q.topic == topic} >= {
        each.queue for each in java.received[-4:]
    }
    go.close()
    until(lambda: len([q for q in java.assigned() if q.topic == topic]) == 4, "all queues in Java")
    late = [f"late{i}" for i in range(8)]
    producer.send(*(message(topic, text, tags="B") for text in late))
    until(lambda: set(late) <= {each.text for each in java.received}, "what came later")


def test_go_orders_delays_and_retries(
    broker: RunningBroker, go_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Shards in order, a delay level, a failing message that comes again through %RETRY%."""
    make_topic(broker, topic)
    producer = go_client.producer(broker.namesrv, group + "-p")
    for shard in ("red", "blue"):
        for number in range(8):
            producer.send(message(topic, f"{shard}-{number}"), shard=shard)
    ordered = go_client.push_consumer(
        broker.namesrv, group + "-o", topic, settings=FIRST, orderly=True
    )
    received = ordered.wait(16, within_s=60)
    for shard in ("red", "blue"):
        mine = [each.text for each in received if each.text.startswith(shard)]
        assert mine == [f"{shard}-{number}" for number in range(8)]

    other = make_topic(broker, topic + "-other")
    go_client.push_consumer(broker.namesrv, group, other, settings=FIRST).close()
    consumer = go_client.push_consumer(broker.namesrv, group, other, settings=FIRST)
    producer.send(
        message(other, "fails once", properties={"fail_times": "1"}),
        message(other, "delayed", delay=1),
    )
    go_client.driver.wait(lambda: len(consumer.consumed) >= 3, "a retry and a delay", 60)
    tries = [each for each in consumer.consumed if each.message.text == "fails once"]
    assert [each.success for each in tries] == [False, True]
    assert tries[1].message.reconsume_times == 1
    delayed = next(each for each in consumer.received if each.text == "delayed")
    assert delayed.store_ms - delayed.born_ms >= 1_000


def test_go_transactions_are_checked_back(
    broker: RunningBroker, go_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Commit, rollback, and a check that is answered with commit."""
    make_topic(broker, topic)
    consumer = go_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    producer = go_client.producer(broker.namesrv, group + "-p", transactional=True)
    producer.transaction(
        message(topic, "committed", properties={"local": "COMMIT"}),
        message(topic, "rolled back", properties={"local": "ROLLBACK"}),
        message(topic, "checked", properties={"local": "UNKNOW", "check": "COMMIT"}),
    )
    received = consumer.wait(2, within_s=60)
    assert sorted(each.text for each in received) == ["checked", "committed"]
    assert [each.text for each in producer.checks][:1] == ["checked"]


def test_go_requests_are_answered_by_java_and_the_other_way(
    broker: RunningBroker,
    go_client: Session,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """Code 324 of Go, 325 of Java, 326 to both."""
    for replying, asking in ((java_498, go_client), (go_client, java_498)):
        name = replying.driver.name.replace(".", "-")
        asked = make_topic(broker, f"{topic}-{name}")
        replier = replying.producer(broker.namesrv, f"{group}-r-{name}")
        # The Go producer registers at the broker with its first heartbeat only.
        asker = asking.producer(broker.namesrv, f"{group}-a-{name}")
        asker.send(message(asked, "hello"))
        replying.push_consumer(
            broker.namesrv, f"{group}-{name}", {asked: "Q"}, settings=FIRST, reply_by=replier.name
        )
        answer = until(
            lambda asker=asker, asked=asked: asker.request(  # type: ignore[misc]
                message(asked, "question", tags="Q"), timeout_ms=5_000
            ),
            "a reply",
            within_s=60,
            ignoring=PeerError,
        )
        assert answer.text == "reply to question", (name, answer)


def test_go_pulls_and_broadcasts(
    broker: RunningBroker, go_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """PullFrom with its statuses; broadcasting to two members."""
    make_topic(broker, topic, queues=1)
    producer = go_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(5)))
    puller = go_client.pull_consumer(broker.namesrv, group, subscriptions=[{"topic": topic}])
    queue = Queue(topic, broker.broker_name, 0)
    found = until(
        lambda: puller.pull(queue, 1, count=2), "a pull with the group known", ignoring=PeerError
    )
    assert (found.status, found.next, found.min, found.max) == ("FOUND", 3, 0, 5)
    assert [each.text for each in found.messages] == ["m1", "m2"]
    assert puller.pull(queue, 9, count=2).status == "OFFSET_ILLEGAL"

    broadcast = {**FIRST, "messageModel": "BROADCASTING"}
    members = [
        go_client.push_consumer(broker.namesrv, group + "-b", topic, settings=broadcast)
        for _ in range(2)
    ]
    for each in members:
        assert sorted(got.text for got in each.wait(5)) == [f"m{i}" for i in range(5)]


def test_go_is_told_what_is_refused(broker: RunningBroker, go_client: Session, topic: str) -> None:
    """A body above 4 MiB: code 13 with the broker's words."""
    producer = go_client.producer(broker.namesrv, "group-" + topic, settings={"retries": 0})
    with pytest.raises(PeerError) as refused:
        producer.send(message(topic, os.urandom((4 << 20) + 1)))
    assert refused.value.text.startswith("CODE: 13, DESC: the message is illegal")
