"""ali-ons 3.12 for Node.js. It sends numbers in headers and reads JSON headers only."""

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import Session, message

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def test_node_sends_and_both_node_and_java_receive(
    broker: RunningBroker,
    node_client: Session,
    java_498: Session,
    make_topic: MakeTopic,
    topic: str,
    group: str,
) -> None:
    """Code 310 without two of its fields; tags, keys, flag, properties, Unicode, a compressed body."""
    make_topic(broker, topic)  # ali-ons does not send to a topic without a route
    producer = node_client.producer(broker.namesrv, group + "-p")
    [sent] = producer.send(
        message(topic, "消息 🚀", tags="A", keys="k1", flag=3, properties={"a": "b"})
    )
    big = "compressed by the client " * 1_000
    producer.send(message(topic, big, tags="A"), *(message(topic, f"m{i}") for i in range(5)))
    assert sent.status == "SEND_OK"

    for client, name in ((node_client, "-node"), (java_498, "-java")):
        consumer = client.push_consumer(broker.namesrv, group + name, topic, settings=FIRST)
        received = consumer.wait(7)
        texts = ["消息 🚀", big, *(f"m{i}" for i in range(5))]
        assert sorted(each.text for each in received) == sorted(texts)
        one = next(each for each in received if each.text == "消息 🚀")
        assert (one.tags, one.keys, one.flag, one.properties["a"]) == ("A", "k1", 3, "b")
        assert (one.queue, one.offset) == (sent.queue, sent.offset)


def test_node_consumes_by_tags_and_resumes_where_it_stopped(
    broker: RunningBroker, node_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """ali-ons sends its subscription with each pull (flag 4)."""
    make_topic(broker, topic)
    producer = node_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"m{i}", tags="ABC"[i % 3]) for i in range(12)))
    consumer = node_client.push_consumer(broker.namesrv, group, {topic: "A || C"}, settings=FIRST)
    wanted = sorted(f"m{i}" for i in range(12) if i % 3 != 1)
    assert sorted(each.text for each in consumer.wait(8)) == wanted
    producer.send(message(topic, "late", tags="C"))
    assert consumer.wait(9)[-1].text == "late"
    consumer.close()
    producer.send(message(topic, "while away", tags="A"))
    again = node_client.push_consumer(broker.namesrv, group, {topic: "A || C"}, settings=FIRST)
    again.wait(1)
    producer.send(*(message(topic, "end", tags="A") for _ in range(4)))
    assert sorted(each.text for each in again.wait(5)) == sorted(["while away", *["end"] * 4])


def test_node_retries_delays_and_broadcasts(
    broker: RunningBroker, node_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """Code 36 from ali-ons, a delay level, broadcasting to two members."""
    make_topic(broker, topic)
    producer = node_client.producer(broker.namesrv, group + "-p")
    node_client.push_consumer(broker.namesrv, group, topic, settings=FIRST).close()
    consumer = node_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    producer.send(
        message(topic, "fails once", properties={"fail_times": "1"}),
        message(topic, "delayed", delay=1),
    )
    node_client.driver.wait(lambda: len(consumer.consumed) >= 3, "a retry and a delay", 60)
    tries = [each for each in consumer.consumed if each.message.text == "fails once"]
    assert [(each.success, each.message.reconsume_times) for each in tries] == [
        (False, 0),
        (True, 1),
    ]
    delayed = next(each for each in consumer.received if each.text == "delayed")
    assert delayed.store_ms - delayed.born_ms >= 1_000

    broadcast = {**FIRST, "messageModel": "BROADCASTING"}
    members = [
        node_client.push_consumer(broker.namesrv, group + "-b", topic, settings=broadcast)
        for _ in range(2)
    ]
    # Every member starts at the end here (ali-ons keeps no offsets for broadcasting by default).
    for each in members:
        each.wait(2)
    producer.send(message(topic, "to both"))
    for each in members:
        node_client.driver.wait(
            lambda each=each: "to both" in [got.text for got in each.received],  # type: ignore[misc]
            "the message at both",
        )
