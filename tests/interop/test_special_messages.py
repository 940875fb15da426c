"""Delay levels, transactions and request-reply of the official Java clients."""

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
ONE_OF_EACH_VERSION = pytest.mark.parametrize(
    "java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True
)


@ONE_OF_EACH_VERSION
def test_a_delayed_message_comes_after_its_delay(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Levels 1 and 2 (here 1 s and 2 s): never early, with the properties of a delivered delay."""
    make_topic(broker, topic)
    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(
        message(topic, "two", delay=2, tags="T", keys="k"),
        message(topic, "one", delay=1),
        message(topic, "now"),
    )
    # Threads of the consumer may overtake each other; the broker's time of storing tells the order.
    received = sorted(consumer.wait(3), key=lambda each: each.store_ms)
    assert [each.text for each in received] == ["now", "one", "two"]
    for each, delay_ms in zip(received, (0, 1_000, 2_000), strict=True):
        assert each.store_ms - each.born_ms >= delay_ms
        assert each.topic == topic
    two = received[2]
    assert (two.tags, two.keys, two.properties["DELAY"]) == ("T", "k", "2")
    assert two.properties["REAL_TOPIC"] == topic


@ONE_OF_EACH_VERSION
def test_a_transaction_is_seen_only_when_it_is_committed(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Commit, rollback, and unknown: the broker checks back and follows the answer."""
    make_topic(broker, topic)
    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    producer = java_client.producer(broker.namesrv, group + "-p", transactional=True)

    def half(text: str, local: str, check: str | None = None) -> dict[str, object]:
        answers = {"local": local} if check is None else {"local": local, "check": check}
        return message(topic, text, tags="T", keys="k-" + text, properties=answers)

    results = producer.transaction(
        half("committed", "COMMIT"),
        half("rolled back", "ROLLBACK"),
        half("checked and committed", "UNKNOW", "COMMIT"),
        half("checked and rolled back", "UNKNOW", "ROLLBACK"),
    )
    assert all(each.status == "SEND_OK" for each in results)

    received = {each.text: each for each in consumer.wait(2, within_s=60)}
    assert set(received) == {"committed", "checked and committed"}
    until(lambda: len(producer.checks) >= 2, "both checks")
    assert {each.text for each in producer.checks} >= {
        "checked and committed",
        "checked and rolled back",
    }
    one = received["committed"]
    assert one.tags == "T"
    assert one.transaction_id == one.msg_id == results[0].msg_id
    assert one.prepared_offset == 0 or one.prepared_offset < one.position
    assert one.sys_flag == 8
    # The properties of the half message stay, those that RocketMQ added for it among them.
    kept = {key: one.properties[key] for key in ("TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID")}
    assert kept == {
        "TRAN_MSG": "true",
        "PGROUP": group + "-p",
        "REAL_TOPIC": topic,
        "REAL_QID": str(one.queue),
    }
    # Nothing may follow: a later message overtakes what would still come.
    plain = java_client.producer(broker.namesrv, group + "-p2")
    plain.send(message(topic, "last"))
    consumer.wait(3)
    assert {each.text for each in consumer.received} == {*received, "last"}


@ONE_OF_EACH_VERSION
def test_a_request_gets_its_reply(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Codes 324 to 326: the replier's answer is pushed to the one that asked."""
    make_topic(broker, topic)
    replier = java_client.producer(broker.namesrv, group + "-replier")
    java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST, reply_by=replier.name)
    asker = java_client.producer(broker.namesrv, group + "-asker")
    for number in range(3):
        answer = asker.request(message(topic, f"question {number}"), timeout_ms=20_000)
        assert answer.text == f"reply to question {number}"
        assert answer.properties["MSG_TYPE"] == "reply"


def test_each_message_of_a_batch_has_the_id_that_its_sender_was_told(
    five_broker: RunningBroker, java_550: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """The batch has an id of its own, which 4.9 brokers store over those of its messages; 5.x do not."""
    make_topic(five_broker, topic)
    consumer = java_550.push_consumer(five_broker.namesrv, group, topic, settings=FIRST)
    producer = java_550.producer(five_broker.namesrv, group + "-p")
    sent = producer.send_batch(
        *(message(topic, f"{n}", properties={"n": str(n)}) for n in range(3))
    )
    received = sorted(consumer.wait(3), key=lambda each: each.text)
    assert sent.msg_id.split(",") == [each.msg_id for each in received]
    assert [each.properties["n"] for each in received] == ["0", "1", "2"]


def test_a_consumer_of_5x_traces_what_it_consumes(
    five_broker: RunningBroker, java_550: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """It drops the trace of a message that says no region; 5.x brokers store theirs with each."""
    traces = make_topic(five_broker, f"{topic}Traces", queues=1)
    make_topic(five_broker, topic)
    tracing = {**FIRST, "enableTrace": True, "traceTopic": traces}
    consumer = java_550.push_consumer(five_broker.namesrv, group, topic, settings=tracing)
    producer = java_550.producer(five_broker.namesrv, group + "-p")
    [sent] = producer.send(message(topic, "traced"))
    [received] = consumer.wait(1)
    assert received.properties["MSG_REGION"] == "DefaultRegion"
    assert received.properties["TRACE_ON"] == "true"
    consumer.close()
    reader = java_550.push_consumer(five_broker.namesrv, group + "-t", traces, settings=FIRST)
    written = reader.wait(1)
    kinds = [each.text.split("\x01")[0] for each in written]
    assert kinds[0] == "SubBefore"
    assert any("SubAfter" in each.text for each in reader.wait(1)), kinds
    assert sent.msg_id in written[0].text


def test_clients_of_4_9_see_what_a_broker_of_4_9_stores(
    pocket_broker: RunningBroker,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """Neither region nor trace switch."""
    make_topic(pocket_broker, topic)
    consumer = java_498.push_consumer(pocket_broker.namesrv, group, topic, settings=FIRST)
    producer = java_498.producer(pocket_broker.namesrv, group + "-p")
    producer.send(message(topic, "one"))
    batch = producer.send_batch(message(topic, "two"), message(topic, "three"))
    received = {each.text: each for each in consumer.wait(3)}
    assert not any({"MSG_REGION", "TRACE_ON"} & set(each.properties) for each in received.values())
    assert batch.msg_id.split(",") == [received[text].msg_id for text in ("two", "three")]
