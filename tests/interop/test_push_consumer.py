"""Push consumers of the official Java clients: groups, models, order, retries, where they begin."""

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import PeerError, Queue, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
BROADCAST = {**FIRST, "messageModel": "BROADCASTING"}
ONE_OF_EACH_VERSION = pytest.mark.parametrize(
    "java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True
)


@ONE_OF_EACH_VERSION
def test_a_later_message_reaches_a_waiting_consumer(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S46: the held pull is answered when the message arrives, not when its 15 s are over."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    consumer = java_client.push_consumer(broker.namesrv, group, {topic: "A"}, settings=FIRST)
    producer.send(message(topic, "wakes", tags="A"))
    consumer.wait(1)
    for number in range(5):
        [sent] = producer.send(message(topic, f"late{number}", tags="A"))
        received = consumer.wait(2 + number)[-1]
        assert received.text == f"late{number}"
        delay_ms = int(received.properties["CONSUME_START_TIME"]) - received.store_ms
        assert delay_ms < 5_000, f"{sent} came {delay_ms} ms after it was stored"


@ONE_OF_EACH_VERSION
def test_a_group_goes_on_where_it_stopped(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """S57: offsets live on the broker; a new member of the group gets what is new and nothing else."""
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"old{i}") for i in range(10)))
    first = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    first.wait(10)
    first.close_when_done(broker.namesrv, group, topic, 10)
    producer.send(*(message(topic, f"new{i}") for i in range(10)))

    second = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)

    assert sorted(each.text for each in second.wait(10)) == sorted(f"new{i}" for i in range(10))
    other = java_client.push_consumer(broker.namesrv, group + "-other", topic, settings=FIRST)
    assert len(other.wait(20)) == 20


@ONE_OF_EACH_VERSION
def test_broadcasting_gives_every_message_to_every_member(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """S10, S58: each member keeps its own offsets in a file of its own and continues from there."""
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(10)))
    members = [
        java_client.push_consumer(
            broker.namesrv, group, topic, settings=BROADCAST, name=f"{group}-{i}"
        )
        for i in range(3)
    ]
    for each in members:
        assert sorted(got.text for got in each.wait(10)) == sorted(f"m{i}" for i in range(10))
    members[0].close()
    producer.send(message(topic, "while one was away"))
    again = java_client.push_consumer(
        broker.namesrv, group, topic, settings=BROADCAST, name=f"{group}-0", instance=f"{group}-0"
    )
    java_client.driver.wait(lambda: len(again.consumed) >= 11, "the message that was missed")
    assert [got.text for got in again.received[10:]] == ["while one was away"]
    for each in members[1:]:
        assert each.wait(11)[-1].text == "while one was away"


@ONE_OF_EACH_VERSION
def test_orderly_consumption_keeps_order_through_a_failure(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S22: an orderly consumer locks its queues; a failing message holds its queue, not the other."""
    make_topic(broker, topic)
    producer = java_client.producer(broker.namesrv, group + "-p")
    for number in range(12):
        failing = {"fail_times": "2"} if number == 5 else None
        for shard in ("red", "blue", "green"):
            fails = failing if shard == "red" else None
            producer.send(message(topic, f"{shard}-{number}", properties=fails), shard=shard)

    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST, orderly=True)
    java_client.driver.wait(
        lambda: sum(each.success for each in consumer.consumed) >= 36, "36 messages in order"
    )

    done = [each.message.text for each in consumer.consumed if each.success]
    for shard in ("red", "blue", "green"):
        mine = [text for text in done if text.startswith(shard)]
        assert mine == [f"{shard}-{number}" for number in range(12)]
    failed = [each.message.text for each in consumer.consumed if not each.success]
    assert failed == ["red-5", "red-5"]


@ONE_OF_EACH_VERSION
def test_a_failing_message_is_retried_then_a_dead_letter(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S61, S63: two retries through %RETRY%, then %DLQ%; the queue itself moves on."""
    make_topic(broker, topic)
    # A group's first member asks for the route of %RETRY% before its heartbeat has created the
    # topic, and asks again only after 30 s: a member before it spares the wait.
    producer = java_client.producer(broker.namesrv, group + "-p")
    before = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    retry_topic = f"%RETRY%{group}"
    until(lambda: producer.queues(retry_topic), "the retry topic's route", ignoring=PeerError)
    before.close()
    [bad] = producer.send(
        message(topic, "bad", tags="T", keys="key", properties={"fail_times": "99"})
    )
    producer.send(message(topic, "recovers", properties={"fail_times": "1"}))
    consumer = java_client.push_consumer(
        broker.namesrv, group, topic, settings={**FIRST, "maxReconsumeTimes": 2}
    )
    java_client.driver.wait(lambda: len(consumer.consumed) >= 5, "three tries and two tries", 90)

    tries = [each for each in consumer.consumed if each.message.text == "bad"]
    assert [each.message.reconsume_times for each in tries] == [0, 1, 2]
    assert {each.message.topic for each in tries} == {topic}
    assert tries[1].message.properties["ORIGIN_MESSAGE_ID"] == bad.offset_msg_id
    recovered = [each for each in consumer.consumed if each.message.text == "recovers"]
    assert [each.success for each in recovered] == [False, True]

    reader = java_client.pull_consumer(broker.namesrv, group + "-dlq")
    dead = Queue(f"%DLQ%{group}", broker.broker_name, 0)
    # The dead letter topic, and with it its route, begins with the first letter.
    [letter] = until(
        lambda: reader.pull(dead, 0).messages,
        "a message in the dead letter queue",
        ignoring=PeerError,
    )
    assert (letter.text, letter.tags, letter.keys) == ("bad", "T", "key")
    assert letter.properties["RETRY_TOPIC"] == topic
    assert letter.properties["ORIGIN_MESSAGE_ID"] == bad.offset_msg_id
    assert letter.reconsume_times == 3


@ONE_OF_EACH_VERSION
def test_where_a_new_group_begins(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """A young queue is read from its start whatever the consumer asks for (wire.md 3.5)."""
    make_topic(broker, topic, queues=1)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}") for i in range(5)))
    last = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=last)
    assert sorted(each.text for each in consumer.wait(5)) == [f"m{i}" for i in range(5)]


@ONE_OF_EACH_VERSION
def test_a_member_that_is_killed_leaves_its_queues_to_the_other(
    broker: RunningBroker,
    java_client: Session,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """S72: a closed connection removes the member at once; what it had not committed comes again."""
    make_topic(broker, topic)
    producer = java_498.producer(broker.namesrv, group + "-p")
    survivor = java_498.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    with java_client.driver.twin() as doomed:
        victim = doomed.session().push_consumer(broker.namesrv, group, topic, settings=FIRST)
        until(lambda: len([q for q in victim.assigned() if q.topic == topic]) == 2, "two queues")
        producer.send(*(message(topic, f"m{i}") for i in range(8)))
        doomed.wait(lambda: len(victim.consumed) >= 4, "four messages at the one")
        doomed.kill()
    until(
        lambda: len([q for q in survivor.assigned() if q.topic == topic]) == 4,
        "all queues at the survivor",
    )
    producer.send(*(message(topic, f"n{i}") for i in range(8)))
    expected = {f"m{i}" for i in range(8)} | {f"n{i}" for i in range(8)}
    until(
        lambda: (
            {each.text for each in survivor.received}
            >= expected - {each.text for each in victim.received}
        ),
        "everything that the dead one did not consume",
    )
    assert {f"n{i}" for i in range(8)} <= {each.text for each in survivor.received}
