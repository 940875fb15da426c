"""Restarts of the broker under official clients: clean stop, kill -9, and what survives both."""

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import NewBroker
from tests.interop.driver import PeerError, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


def stop(broker: RunningBroker, how: str) -> None:
    if how == "clean stop":
        assert broker.stop() == (0 if broker.kind == "pocketmq" else 143)
    else:
        broker.kill()


@pytest.mark.parametrize("how", ["clean stop", "kill -9"])
def test_clients_and_data_live_through_a_restart_of_the_broker(
    new_broker: NewBroker, java_498: Session, go_client: Session, topic: str, group: str, how: str
) -> None:
    """S57: topics, messages, group offsets and delayed messages; the clients reconnect by themselves."""
    broker = new_broker()
    producer = java_498.producer(broker.namesrv, group + "-p")
    producer.send(*(message(topic, f"before{i}", tags="A", keys=f"k{i}") for i in range(20)))
    # A client's heartbeat, every 30 s by default, tells the new process of its group.
    often = {**FIRST, "heartbeatBrokerInterval": 2_000}
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=often)
    go = go_client.producer(broker.namesrv, group + "-go")
    go.send(message(topic + "-go", "before"))
    assert len(consumer.wait(20)) == 20
    producer.send(message(topic, "delayed over the restart", delay=2))
    consumer.persist_offsets()
    # Offsets reach the disk every five seconds; only a clean stop writes them at once.
    stopped = java_498.push_consumer(broker.namesrv, group + "-stopped", topic, settings=FIRST)
    stopped.close_when_done(broker.namesrv, group + "-stopped", topic, 20)

    stop(broker, how)
    with pytest.raises(PeerError):
        producer.send(message(topic, "while away"))
    broker.start()

    def sent() -> bool:
        return producer.send(message(topic, "after"))[0].status == "SEND_OK"

    until(sent, "a send after the restart", within_s=60, ignoring=PeerError)
    if how == "clean stop":
        # A Java client does not notice that a held pull has died with its connection: it waits for
        # that pull's 30 s.
        until(
            lambda: (
                {"after", "delayed over the restart"} <= {got.text for got in consumer.received}
            ),
            "what came after the restart, at the consumer that was there before",
        )
    until(
        lambda: go.send(message(topic + "-go", "after"))[0].status == "SEND_OK",
        "a send of the Go client after the restart",
        ignoring=PeerError,
    )
    late = {"after", "delayed over the restart"}
    fresh = java_498.push_consumer(broker.namesrv, group + "-fresh", topic, settings=FIRST)
    everything = late | {f"before{i}" for i in range(20)}
    until(lambda: {got.text for got in fresh.received} == everything, "all messages")
    assert [got.text for got in producer.query_key(topic, "k7")] == ["before7"]
    if how == "clean stop":
        again = java_498.push_consumer(broker.namesrv, group + "-stopped", topic, settings=FIRST)
        until(lambda: late <= {got.text for got in again.received}, "what is new")
        assert {got.text for got in again.received} == late
        assert sorted(got.text for got in consumer.received).count("before3") == 1


def test_nothing_that_was_acknowledged_is_lost_by_kill_9(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """R1 in small: kill -9 in the middle of a flood, with a consumer that sees all of it."""
    broker = new_broker()
    producer = java_498.producer(broker.namesrv, group + "-p", settings={"sendMsgTimeout": 3_000})
    producer.send(message(topic, "the first makes the topic"))
    flood = producer.begin_flood(topic, prefix=group, size=200)
    java_498.driver.wait(lambda: len(producer.acks) > 300, "300 acknowledged messages")
    broker.kill()
    broker.start()
    before = len(producer.acks)
    java_498.driver.wait(lambda: len(producer.acks) > before + 100, "100 more after it", 90)
    producer.end_flood(flood)

    acknowledged = {text for text, _ in producer.acks}
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=FIRST)
    until(
        lambda: acknowledged <= {each.text.rstrip("\0") for each in consumer.received},
        f"all of {len(acknowledged)} acknowledged messages",
        within_s=60,
    )
    places = {(each.queue, each.offset) for each in consumer.received}
    assert len(places) == len(consumer.received), "no place of a queue was given twice"
