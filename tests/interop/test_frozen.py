"""SIGSTOP of the broker, and of a consumer, with official clients and ours: they wait or fail over.

`--freeze-seconds 60` for the length that docs/reliability.md reports; a consumer is frozen for 150 s, past
the 120 s after which the broker forgets it, where `--freeze-seconds` is 60 or more.
"""

import os
import signal
import sys
import time
from contextlib import ExitStack

import pytest

from tests.faults.test_partitions import client
from tests.interop.brokers import PocketBroker, RunningBroker
from tests.interop.conftest import NewBroker
from tests.interop.driver import PeerError, PushConsumer, Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
_FORGOTTEN_S = 150


@pytest.fixture
def freeze_seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--freeze-seconds"))


@pytest.fixture
def frozen_broker(new_broker: NewBroker) -> PocketBroker:
    made = new_broker()
    if not isinstance(made, PocketBroker):
        pytest.skip("only our own process is frozen")
    return made


def texts(*consumers: PushConsumer) -> set[str]:
    return {each.message.text for consumer in consumers for each in consumer.consumed}


@pytest.mark.slow
def test_clients_go_on_after_a_broker_that_stood_still(
    frozen_broker: PocketBroker,
    java_498: Session,
    go_client: Session,
    topic: str,
    group: str,
    freeze_seconds: float,
) -> None:
    """Java, Go and Python, each with a producer and a group of its own."""
    broker = frozen_broker
    producers = {
        "java": java_498.producer(broker.namesrv, f"{group}-jp"),
        "go": go_client.producer(broker.namesrv, f"{group}-gp"),
    }
    for name, producer in producers.items():
        producer.send(message(topic, f"{name}-first"))
    consumers = {
        "java": java_498.push_consumer(broker.namesrv, f"{group}-j", topic, settings=FIRST),
        "go": go_client.push_consumer(broker.namesrv, f"{group}-g", topic, settings=FIRST),
    }
    program = [sys.executable, "-m", "tests.faults.client_program"]
    with client([*program, broker.namesrv, f"{topic}P", f"{group}P", "2"]) as python:
        python.wait(lambda: len(python.got) > 5, "the first messages in Python", 60)
        broker.process.freeze()
        begin = time.monotonic()
        # Half of the time the clients try to send, and see what a dead network would show them.
        acknowledged: set[str] = set()
        number = 0
        while time.monotonic() - begin < freeze_seconds:
            for name, producer in producers.items():
                number += 1
                text = f"{name}-frozen-{number}"
                try:
                    producer.send(message(topic, text))
                except PeerError:
                    continue
                acknowledged.add(text)
        broker.process.thaw()
        thawed = time.monotonic()
        known = max(python.acked, default=0)
        for name, producer in producers.items():
            text = f"{name}-after"

            def sent(text: str = text, producer=producer) -> bool:  # type: ignore[no-untyped-def]
                return producer.send(message(topic, text))[0].error is None

            until(sent, f"{name} sends again", within_s=60, ignoring=PeerError)
            acknowledged.add(text)
        for name, consumer in consumers.items():
            until(
                lambda consumer=consumer: acknowledged <= texts(consumer),  # type: ignore[misc]
                f"{name} consumes all that was acknowledged",
                within_s=90,
            )
        python.wait(
            lambda: any(each > known for each in python.got), "Python to consume after the thaw", 60
        )
        assert time.monotonic() - thawed < 120
        python.tell()
        python.wait(lambda: "stopped sending" in python.words, "the end of sending", 60)
        python.wait(lambda: python.acked <= python.got, "all that Python sent is consumed", 60)
        assert python.end() == 0


@pytest.mark.slow
def test_queues_of_a_frozen_consumer_go_to_the_other(
    broker: RunningBroker,
    java_498: Session,
    topic: str,
    group: str,
    freeze_seconds: float,
) -> None:
    """Expiry after 120 s, new shares 20 s later; by default only that nothing is lost by a short pause."""
    seconds = _FORGOTTEN_S if freeze_seconds >= 60 else freeze_seconds
    producer = java_498.producer(broker.namesrv, f"{group}-p")
    producer.send(message(topic, "first"))
    with ExitStack() as stack:
        twin = stack.enter_context(java_498.driver.twin())
        other = stack.enter_context(twin.session())
        stays = java_498.push_consumer(
            broker.namesrv, group, topic, settings=FIRST, instance="1-stays"
        )
        frozen = other.push_consumer(
            broker.namesrv, group, topic, settings=FIRST, instance="2-frozen"
        )
        until(lambda: stays.assigned() and frozen.assigned(), "both have queues", within_s=60)
        os.kill(twin.pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            sent = {f"during-{number}" for number in range(40)}
            producer.send(*(message(topic, text) for text in sorted(sent)))
            if seconds >= _FORGOTTEN_S:
                until(
                    lambda: sent <= texts(stays),
                    "the other has all queues and all messages",
                    within_s=120 + 20 + 20,
                )
            else:
                time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
        finally:
            os.kill(twin.pid, signal.SIGCONT)
        until(
            lambda: sent <= texts(stays, frozen), "all messages, by one or the other", within_s=90
        )
