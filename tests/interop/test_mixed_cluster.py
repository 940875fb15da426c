"""One name server, brokers of both makes (acceptance.md: scale)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.brokers import RunningBroker, make_broker
from tests.interop.conftest import Shared, or_missing
from tests.interop.driver import Session, message
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}

Start = Callable[..., RunningBroker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(kind, **where) starts a broker with arguments of make_broker."""
    with ExitStack() as leave:

        def run(kind: str, **where: str) -> RunningBroker:
            place = tmp_path / f"broker{len(list(tmp_path.iterdir()))}"
            broker = or_missing(lambda: make_broker(kind, place, **where))  # type: ignore[arg-type]
            leave.callback(broker.kill)
            return broker.start()

        yield run


@pytest.mark.parametrize(
    ("host", "guest"),
    [
        ("pocketmq", "rocketmq-4.9.7"),
        ("rocketmq-4.9.7", "pocketmq"),
        pytest.param("pocketmq", "rocketmq-5.5.0", marks=pytest.mark.reference),
        pytest.param("rocketmq-5.5.0", "pocketmq", marks=pytest.mark.reference),
        pytest.param("rocketmq-4.9.7", "rocketmq-4.9.7", marks=pytest.mark.reference),
    ],
)
def test_apache_and_our_broker_serve_one_topic_together(
    start: Start, java_498: Session, shared: Shared, topic: str, group: str, host: str, guest: str
) -> None:
    """The guest registers at the host's name server; a topic lies on both; one goes, one stays."""
    first = start(host)
    second = start(guest, namesrv=first.namesrv, broker_name="broker-b")
    admin = shared.mqadmin("4.9.7").at(first.namesrv)
    both = [[first.cluster, "broker-a", "0", first.address]]
    both += [[first.cluster, "broker-b", "0", second.address]]
    until(lambda: [row[:4] for row in admin("clusterList").rows] == both, "both in the cluster")
    admin("updateTopic", "-c", first.cluster, "-t", topic, "-r", 2, "-w", 2)

    producer = java_498.producer(first.namesrv, group + "-p")
    queues = until(
        lambda: [q for q in [producer.queues(topic)] if len(q) == 4],
        "four queues on two brokers",
        ignoring=Exception,
    )[0]
    assert {(each.broker, each.queue) for each in queues} == {
        (name, number) for name in ("broker-a", "broker-b") for number in (0, 1)
    }
    sent = producer.send(*(message(topic, f"m{i}", keys=f"k{i}") for i in range(16)))
    assert {each.broker for each in sent} == {"broker-a", "broker-b"}
    members = [
        java_498.push_consumer(first.namesrv, group, topic, settings=FIRST) for _ in range(2)
    ]
    until(
        lambda: all(len([q for q in each.assigned() if q.topic == topic]) == 2 for each in members),
        "two queues for each member",
    )
    until(
        lambda: (
            {got.text for each in members for got in each.received} >= {f"m{i}" for i in range(16)}
        ),
        "every message at one of both",
    )
    on_each = [
        next(each for each in sent if each.broker == name) for name in ("broker-a", "broker-b")
    ]
    for each in on_each:
        assert producer.view(topic, each.offset_msg_id).queue == each.queue

    second.process.kill()
    until(
        lambda: [row[:4] for row in admin("clusterList").rows] == both[:1],
        "the broker that stopped has left the cluster",
    )
    [route] = until(
        lambda: [
            q for q in [java_498.producer(first.namesrv, group + "-q").queues(topic)] if len(q) == 2
        ],
        "the route without it",
        ignoring=Exception,
    )
    assert {each.broker for each in route} == {"broker-a"}
