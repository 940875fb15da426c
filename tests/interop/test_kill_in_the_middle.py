"""kill -9 of the broker in the middle of retries, delays, transactions and orderly consumption.

What comes twice is allowed, as in RocketMQ; what is lost, early or out of
order is not.
"""

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import NewBroker
from tests.interop.driver import PeerError, PushConsumer, Queue, Session, message
from tests.kit.waiting import until

# A client's heartbeat, every 30 s by default, tells the new process of its group.
OFTEN = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "heartbeatBrokerInterval": 1_000}


def kill_and_start(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()


def done(*consumers: PushConsumer) -> list[str]:
    return [each.message.text for c in consumers for each in c.consumed if each.success]


def test_retries_and_dead_letters_survive_kill_9(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """Part 6: every message is consumed in the end or is a dead letter, however often it had failed."""
    broker = new_broker()
    producer = java_498.producer(broker.namesrv, group + "-p")
    settings = {**OFTEN, "maxReconsumeTimes": 2}
    recover, bad = [f"recovers{i}" for i in range(8)], [f"bad{i}" for i in range(4)]
    producer.send(
        *(message(topic, text, properties={"fail_times": "1"}) for text in recover),
        *(message(topic, text, keys=text, properties={"fail_times": "99"}) for text in bad),
    )
    first = java_498.push_consumer(
        broker.namesrv, group, topic, settings=settings, instance="3-first"
    )
    java_498.driver.wait(lambda: len(first.consumed) >= 12, "the first tries")
    kill_and_start(broker)
    # The held pulls of the one that was there wait for their own end; a new one need not, and the single
    # queue of the retry topic goes to the one whose name is the lowest.
    second = java_498.push_consumer(
        broker.namesrv, group, topic, settings=settings, instance="2-second"
    )
    java_498.driver.wait(
        lambda: (
            sum("bad" in each.message.text for c in (first, second) for each in c.consumed)
            >= len(bad) + 2
        ),
        "some second tries",
        90,
    )
    kill_and_start(broker)
    third = java_498.push_consumer(
        broker.namesrv, group, topic, settings=settings, instance="1-third"
    )
    java_498.driver.wait(
        lambda: set(recover) <= set(done(first, second, third)), "those that recover", 90
    )
    reader = java_498.pull_consumer(broker.namesrv, group + "-dlq")
    dead = Queue(f"%DLQ%{group}", broker.broker_name, 0)
    until(
        lambda: {each.text for each in reader.pull(dead, 0).messages} == set(bad),
        "the dead letters, and no others",
        within_s=90,
        ignoring=PeerError,
    )
    assert {each.keys for each in reader.pull(dead, 0).messages} == set(bad)
    assert not set(bad) & set(done(first, second, third))


def test_delayed_messages_survive_kill_9_and_are_not_early(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """Part 7: killed while some of a level are delivered and others wait."""
    broker = new_broker()
    producer = java_498.producer(broker.namesrv, group + "-p")
    texts = [f"{level}-{number}" for number in range(12) for level in (1, 2)]
    producer.send(*(message(topic, text, delay=int(text[0])) for text in texts))
    watcher = java_498.push_consumer(broker.namesrv, group + "-w", topic, settings=OFTEN)
    watcher.wait(3)
    kill_and_start(broker)
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=OFTEN)
    java_498.driver.wait(
        lambda: {each.text for each in consumer.received} == set(texts), "all of them", 60
    )
    for each in consumer.received:
        assert each.store_ms - each.born_ms >= int(each.text[0]) * 1_000


def test_transactions_survive_kill_9_at_each_step(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """Part 8: killed behind prepared, committed and rolled back messages, and while it checks back."""
    broker = new_broker()
    producer = java_498.producer(
        broker.namesrv,
        group + "-p",
        transactional=True,
        settings={"heartbeatBrokerInterval": 1_000},
    )

    def half(text: str, local: str, check: str) -> dict[str, object]:
        return message(topic, text, keys=text, properties={"local": local, "check": check})

    commit = [f"checked and committed {number}" for number in range(6)]
    roll_back = [f"checked and rolled back {number}" for number in range(6)]
    producer.transaction(
        half("committed", "COMMIT", "ROLLBACK"),
        half("rolled back", "ROLLBACK", "COMMIT"),
        *(half(text, "UNKNOW", "COMMIT") for text in commit),
        *(half(text, "UNKNOW", "ROLLBACK") for text in roll_back),
    )
    watcher = java_498.push_consumer(broker.namesrv, group + "-w", topic, settings=OFTEN)
    # The ends are sent one-way: this one has come when it can be read; the others stand before it.
    watcher.wait(1)
    kill_and_start(broker)
    java_498.driver.wait(lambda: len(producer.checks) >= 2, "checks after the first restart", 90)
    kill_and_start(broker)
    consumer = java_498.push_consumer(broker.namesrv, group, topic, settings=OFTEN)
    java_498.driver.wait(
        lambda: {*commit, "committed"} <= {each.text for each in consumer.received},
        "all that were committed",
        90,
    )
    checked = {each.text for each in producer.checks}
    assert checked >= {*roll_back}
    assert "rolled back" not in {each.text for each in consumer.received}
    assert {each.text for each in consumer.received} == {*commit, "committed"}


def test_orderly_consumption_keeps_its_order_through_kill_9(
    new_broker: NewBroker, java_498: Session, topic: str, group: str
) -> None:
    """Part 9: the new process knows no lock; the member locks its queues again and consumes in order."""
    broker = new_broker()
    producer = java_498.producer(broker.namesrv, group + "-p")
    shards = ("red", "blue", "green")

    for number in range(30):
        for shard in shards:
            producer.send(message(topic, f"{shard}-{number:02}"), shard=shard)
    consumer = java_498.push_consumer(
        broker.namesrv,
        group,
        topic,
        # Not all are fetched before the kill.
        settings={**OFTEN, "pullBatchSize": 2, "pullThresholdForQueue": 4},
        orderly=True,
        delay_ms=30,
    )
    java_498.driver.wait(lambda: len(consumer.consumed) >= 12, "the first ones")
    kill_and_start(broker)
    wanted = {f"{shard}-{number:02}" for shard in shards for number in range(30)}
    java_498.driver.wait(lambda: set(done(consumer)) == wanted, "all of them", 90)
    for shard in shards:
        # What was consumed and not yet committed comes again, and behind it all that follows.
        firsts = dict.fromkeys(text for text in done(consumer) if text.startswith(shard))
        assert list(firsts) == sorted(firsts)
