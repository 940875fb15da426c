"""Sending and consuming with the official Java clients, in both header encodings (issue 3, part 5)."""

from tests.interop.brokers import RunningBroker
from tests.interop.driver import Session, message

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def test_each_kind_of_send_arrives_once_at_a_push_consumer(
    broker: RunningBroker, java_client: Session, topic: str, group: str
) -> None:
    """S33, S34: sync, async, oneway and batch sends; one push consumer gets every message once, whole."""
    producer = java_client.producer(broker.namesrv, group + "-p")
    sync = producer.send(
        message(topic, "sync", tags="A", keys="k1 k2", flag=7, properties={"a": "b"})
    )
    asynchronous = producer.send_async(*(message(topic, f"async{i}") for i in range(20)))
    producer.send_oneway(message(topic, "oneway"))
    batch = producer.send_batch(*(message(topic, f"batch{i}", tags="B") for i in range(8)))

    consumer = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    received = consumer.wait(1 + 20 + 1 + 8)

    expected = (
        ["sync", "oneway"] + [f"async{i}" for i in range(20)] + [f"batch{i}" for i in range(8)]
    )
    assert sorted(each.text for each in received) == sorted(expected)
    assert all(each.status == "SEND_OK" for each in [*sync, *asynchronous, batch])
    by_text = {each.text: each for each in received}
    first = by_text["sync"]
    assert (first.tags, first.keys, first.flag, first.properties["a"]) == ("A", "k1 k2", 7, "b")
    assert (first.msg_id, first.queue, first.offset) == (
        sync[0].msg_id,
        sync[0].queue,
        sync[0].offset,
    )
    assert first.offset_msg_id == sync[0].offset_msg_id
    assert first.properties["CLUSTER"] == broker.cluster
    ids = [by_text[f"batch{i}"].msg_id for i in range(8)]
    if java_client.driver.name.startswith("java-4.9.8"):
        assert ids == batch.msg_id.split(",")
    else:
        # Client 5 gives the batch itself a UNIQ_KEY, too. A broker appends the outer properties to
        # each message and the last one wins, so all share that key; 4.9.7 does the same.
        assert len(set(ids)) == 1
    assert [by_text[f"batch{i}"].offset for i in range(8)] == list(
        range(batch.offset, batch.offset + 8)
    )
