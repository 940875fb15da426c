"""Dramatiq's broker: delays in the broker, prefetch, dead letters, what is given back, and lost names."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq import Message, QueueJoinTimeout, Worker
from dramatiq.brokers.stub import StubBroker
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionClosed, ConnectionFailed

from pocketmq.integrations.dramatiq import PocketmqBroker
from pocketmq.integrations.queue_names import topic_of
from pocketmq.remoting.errors import CallerError
from pocketmq.testing import InProcess
from tests.kit.waiting import until


@pytest.fixture
def make(
    server: InProcess, request: pytest.FixtureRequest
) -> Iterator[Callable[..., PocketmqBroker]]:
    made: list[PocketmqBroker] = []

    def broker(**options: Any) -> PocketmqBroker:
        made.append(PocketmqBroker(server.namesrv, prefix=f"{request.node.name}.", **options))
        return made[-1]

    yield broker
    for each in made:
        each.close()


def topic_here(request: pytest.FixtureRequest) -> str:
    return topic_of(f"{request.node.name}.default")


@contextmanager
def working(broker: PocketmqBroker, threads: int = 4) -> Iterator[Worker]:
    worker = Worker(broker, worker_timeout=100, worker_threads=threads)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def message(number: int, **options: Any) -> "Message[Any]":
    return Message("default", "work", (number,), {}, options)


def taken(consumer: Any) -> Any:
    """The next message; a consumer says None each time that it has waited."""
    return next(filter(None, consumer))


def test_actors_run_and_what_they_fail_for_good_is_a_dead_letter(
    server: InProcess, make: Callable[..., PocketmqBroker], request: pytest.FixtureRequest
) -> None:
    broker, seen = make(), []

    @dramatiq.actor(broker=broker, max_retries=1, min_backoff=10, max_backoff=20)
    def work(number: int) -> None:
        seen.append(number)
        if number == 3:
            raise ValueError("never")

    sent = [work.send(number) for number in range(5)]
    with working(broker):
        broker.join("default")
    assert sorted(seen) == [0, 1, 2, 3, 3, 4]
    until(lambda: broker.get_queue_message_counts("default") == (0, 0, 1), "a dead letter")
    [letter] = server.messages(f"%DLQ%{topic_here(request)}")
    assert letter.keys == sent[3].message_id
    assert letter.tags == "work"


def test_a_delay_waits_in_the_broker_and_holds_no_prefetch(
    make: Callable[..., PocketmqBroker],
) -> None:
    broker = make()
    began_ms = current_millis()
    later = broker.enqueue(message(1), delay=1_500)
    broker.enqueue(message(2), delay=3_600_000)
    broker.enqueue(message(3))
    consumer = broker.consume("default", prefetch=1, timeout=200)
    now = taken(consumer)
    assert now.args == (3,)
    assert next(consumer) is None
    consumer.ack(now)
    found = taken(consumer)
    assert current_millis() - began_ms >= 1_500
    assert (found.args, "eta" in found.options) == ((1,), False)
    assert found.message_id == later.message_id
    consumer.ack(found)
    assert broker.get_queue_message_counts("default") == (0, 1, 0)
    with pytest.raises(QueueJoinTimeout):
        broker.join("default", timeout=100)
    broker.flush("default")
    broker.join("default")


def test_what_is_given_back_comes_again_as_new(make: Callable[..., PocketmqBroker]) -> None:
    broker = make(priorities=3)
    for number, priority in ((1, 0), (2, 2), (3, 7)):
        broker.enqueue(message(number, broker_priority=priority))
    consumer = broker.consume("default", prefetch=3, timeout=200)
    first = taken(consumer)
    assert first.args == (2,)
    # One by the worker's shutdown, the others by the consumer's: they were taken and not asked for.
    consumer.requeue([first])
    consumer.close()
    assert consumer.unsettled == 0
    again = broker.consume("default", prefetch=1, timeout=200)
    order = []
    for _ in range(3):
        found = taken(again)
        assert found.stored.reconsume_times == 0
        order.append(found.args)
        again.ack(found)
    assert sorted(order[:2]) == [(2,), (3,)]
    assert order[2] == (1,)
    broker.join("default")


def test_a_task_of_a_worker_that_died_comes_again(make: Callable[..., PocketmqBroker]) -> None:
    first, second = make(invisible_ms=1_000), make(invisible_ms=1_000)
    first.enqueue(message(1))
    taken(first.consume("default", timeout=200))
    first.close()
    consumer = second.consume("default", timeout=200)
    found = taken(consumer)
    assert found.args == (1,)
    consumer.ack(found)


def test_what_cannot_be_decoded_or_has_no_actor_is_a_dead_letter(
    server: InProcess, make: Callable[..., PocketmqBroker], request: pytest.FixtureRequest
) -> None:
    """A consumer that ended by one would be made anew for each of its redeliveries."""
    broker = make()
    broker.declare_queue("default")
    whole = message(1).asdict()
    parts: list[dict[str, object]] = [
        {"options": None},
        {"options": {"eta": float("inf")}},
        {"options": {"eta": float("nan")}},
        {"options": {"broker_priority": "high"}},
        {"message_id": None},
        {"actor_name": 1},
        {"args": 1},
        {"more": 1},
    ]
    bodies = ["no JSON", "{}", "[]", *(json.dumps({**whole, **part}) for part in parts)]
    for body in bodies:
        server.send(topic_here(request), body)
    consumer = broker.consume("default", prefetch=32, timeout=200)
    while broker.get_queue_message_counts("default")[2] < len(bodies):
        assert next(consumer) is None
    consumer.close()
    broker.enqueue(message(1))
    with working(broker):
        until(
            lambda: broker.get_queue_message_counts("default") == (0, 0, 1 + len(bodies)),
            "dead letters",
        )


def test_a_topic_that_was_deleted_is_made_again(
    server: InProcess, make: Callable[..., PocketmqBroker], request: pytest.FixtureRequest
) -> None:
    broker = make()
    broker.enqueue(message(1))
    server.call(server.aio.admin.topics.delete(topic_here(request)))
    broker.enqueue(message(2))
    consumer = broker.consume("default", timeout=200)
    found = taken(consumer)
    assert found.args == (2,)
    consumer.ack(found)


def test_errors_are_dramatiqs_where_trying_again_may_help(
    make: Callable[..., PocketmqBroker],
) -> None:
    nowhere = PocketmqBroker("127.0.0.1:1", connect_timeout_ms=100)
    with pytest.raises(ConnectionClosed):
        nowhere.consume("default")
    with pytest.raises(ConnectionFailed):
        nowhere.join("default")
    with pytest.raises(CallerError, match=r"\d+ bytes"):
        make().enqueue(message(1, padding="x" * (5 << 20)))
    # Another broker's message, as Dramatiq's own brokers do: nothing happens.
    consumer = make().consume("default", timeout=100)
    consumer.ack(dramatiq.MessageProxy(message(1)))
    consumer.nack(dramatiq.MessageProxy(message(1)))
    assert make().get_declared_delay_queues() == StubBroker().get_declared_delay_queues() == set()
