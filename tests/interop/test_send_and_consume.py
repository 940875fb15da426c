"""Sending and consuming with the official Java clients, in both header encodings."""

import os

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic
from tests.interop.driver import PushConsumer, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def test_each_kind_of_send_arrives_once_and_whole(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """S33, S34: sync, async, oneway and batch sends; a push consumer gets every message once."""
    producer = java_client.producer(broker.namesrv, group + "-p")
    [sync] = producer.send(
        message(topic, "sync", tags="A", keys="k1 k2", flag=7, properties={"a": "b"})
    )
    asynchronous = producer.send_async(*(message(topic, f"async{i}") for i in range(20)))
    producer.send_oneway(message(topic, "oneway"))
    batch = producer.send_batch(*(message(topic, f"batch{i}", tags="B") for i in range(8)))

    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    received = consumer.wait(1 + 20 + 1 + 8)

    expected = ["sync", "oneway", *(f"async{i}" for i in range(20))]
    expected += [f"batch{i}" for i in range(8)]
    assert sorted(each.text for each in received) == sorted(expected)
    assert all(each.status == "SEND_OK" for each in [sync, *asynchronous, batch])
    assert all(each.region == "DefaultRegion" and each.trace_on for each in [sync, *asynchronous])
    by_text = {each.text: each for each in received}
    first = by_text["sync"]
    assert (first.tags, first.keys, first.flag) == ("A", "k1 k2", 7)
    assert first.properties["a"] == "b"
    assert (first.msg_id, first.offset_msg_id) == (sync.msg_id, sync.offset_msg_id)
    assert (first.broker, first.queue, first.offset) == (sync.broker, sync.queue, sync.offset)
    assert first.properties["CLUSTER"] == broker.cluster
    ids = [by_text[f"batch{i}"].msg_id for i in range(8)]
    if java_client.driver.name.startswith("java-4.9.8") or broker.kind == "pocketmq":
        assert ids == batch.msg_id.split(",")
    else:
        # Client 5 gives the batch itself a UNIQ_KEY, too. Apache's 4.9.7 appends the outer properties to
        # each message and the last one wins, so all share that key; its 5.x does not, and neither do we.
        assert len(set(ids)) == 1
    offsets = [by_text[f"batch{i}"].offset for i in range(8)]
    assert offsets == list(range(batch.offset, batch.offset + 8))


def test_a_send_result_names_the_place_of_the_message(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S82: queue offsets count up from 0 in each of the four queues; ids lead to the message."""
    make_topic(broker, topic)
    producer = java_client.producer(broker.namesrv, group)
    results = producer.send(*(message(topic, f"m{i}") for i in range(12)))

    by_queue: dict[int, list[int]] = {}
    for each in results:
        by_queue.setdefault(each.queue, []).append(each.offset)
    assert by_queue == {queue: [0, 1, 2] for queue in range(4)}
    viewed = producer.view(topic, results[5].offset_msg_id)
    assert (viewed.text, viewed.queue, viewed.offset) == ("m5", results[5].queue, results[5].offset)
    host, _, port = broker.address.partition(":")
    prefix = "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}"
    assert all(each.offset_msg_id.startswith(prefix) for each in results)


def test_bodies_come_back_byte_for_byte(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """Binary, non-Latin, compressible (the client compresses from 4 KiB on) and large bodies."""
    bodies = [
        bytes(range(256)),
        "消息 и ещё 🚀".encode(),
        b"x" * 100_000,
        os.urandom(1_000_000),
    ]
    producer = java_client.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, body) for body in bodies))

    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)

    assert sorted(each.body for each in consumer.wait(len(bodies))) == sorted(bodies)


def test_two_consumers_share_the_queues_and_filter_by_tags(
    broker: RunningBroker, java_client: Session, make_topic: MakeTopic, topic: str, group: str
) -> None:
    """S15, S67, S80: two members take two queues each; when one leaves, the other takes all."""
    make_topic(broker, topic)
    producer = java_client.producer(broker.namesrv, group + "-p")
    wanted = {topic: "A || B"}
    one = java_client.push_consumer(broker.namesrv, group, wanted, settings=FIRST)
    two = java_client.push_consumer(broker.namesrv, group, wanted, settings=FIRST)
    driver = java_client.driver

    def own(consumer: PushConsumer) -> list[int]:
        return [each.queue for each in consumer.assigned() if each.topic == topic]

    until(lambda: len(own(one)) == len(own(two)) == 2, "two queues each")
    assert sorted(own(one) + own(two)) == [0, 1, 2, 3]

    sent = [message(topic, f"{tag}{i}", tags=tag) for i in range(16) for tag in ("A", "B", "C")]
    producer.send(*sent)
    driver.wait(lambda: len(one.consumed) + len(two.consumed) >= 32, "32 messages at both")
    texts = sorted(each.text for each in one.received + two.received)
    assert texts == sorted(f"{tag}{i}" for i in range(16) for tag in ("A", "B"))
    assert {each.queue for each in one.received} == set(own(one))
    assert {each.queue for each in two.received} == set(own(two))

    two.close()
    until(lambda: own(one) == [0, 1, 2, 3], "all queues at the one that is left")
    producer.send(*(message(topic, f"late{i}", tags="B") for i in range(8)))
    driver.wait(lambda: len(one.consumed) + len(two.consumed) >= 40, "8 more messages at the first")
    late = [each.text for each in one.received if each.text.startswith("late")]
    assert sorted(late) == sorted(f"late{i}" for i in range(8))
