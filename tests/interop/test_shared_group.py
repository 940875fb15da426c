"""Members in Python and in Java share one group, while they join and are killed."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import RunningBroker
from tests.interop.conftest import MakeTopic, Shared
from tests.interop.driver import PushConsumer as JavaPushConsumer
from tests.interop.driver import Session, message
from tests.interop.processes import Process
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


ROOT = Path(__file__).parents[2]


@pytest.fixture(
    scope="session",
    params=[
        "pocketmq",
        pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
        pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference),
    ],
)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """Our broker, and with --reference both real ones: the client is to work with each."""
    return shared.broker(request.param)


class Member:
    """client_peer in a process of its own."""

    def __init__(
        self, folder: Path, broker: RunningBroker, group: str, topic: str, *words: str
    ) -> None:
        command = [sys.executable, "-m", "tests.interop.client_peer"]
        command += [broker.namesrv, group, topic, *words]
        number = len(list(folder.glob("member*")))
        self.process = Process(command, folder / f"member{number}.log", cwd=ROOT)

    @property
    def got(self) -> list[dict[str, object]]:
        lines = self.process.printed().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def texts(self) -> list[str]:
        return [str(each["body"]) for each in self.got]


@pytest.fixture
def start_member(broker: RunningBroker, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    started: list[Member] = []

    def start(group: str, topic: str, *words: str) -> Member:
        made = Member(tmp_path, broker, group, topic, *words)
        started.append(made)
        made.process.wait_for_line("started")
        return made

    yield start
    for each in started:
        each.process.kill()


def owned(consumer: JavaPushConsumer, topic: str) -> set[int]:
    return {queue.queue for queue in consumer.assigned() if queue.topic == topic}


def java_texts(consumer: JavaPushConsumer) -> list[str]:
    return [each.text for each in consumer.received]


@pytest.mark.parametrize(
    ("java_client", "orderly"),
    [("5.5.0-JSON", False), ("4.9.8-JSON", True)],
    ids=["concurrently-with-5.5.0", "orderly-with-4.9.8"],
    indirect=["java_client"],
)
def test_python_and_java_share_a_group_through_join_and_kill(
    broker: RunningBroker,
    java_client: Session,
    make_topic: MakeTopic,
    start_member: Callable[..., Member],
    topic: str,
    group: str,
    orderly: bool,
) -> None:
    """Nothing is lost, each message has one owner at a time, while members come and go."""
    make_topic(broker, topic)
    words = ["--orderly"] if orderly else []
    producer = java_client.producer(broker.namesrv, f"{group}-p")
    sent: list[str] = []

    def send(count: int) -> None:
        texts = [f"m{len(sent) + number}" for number in range(count)]
        for number, text in enumerate(texts):
            producer.send(message(topic, text), queue=number % 4)
        sent.extend(texts)

    java = java_client.push_consumer(broker.namesrv, group, topic, settings=FIRST, orderly=orderly)
    send(8)
    java.wait(8)

    # A join: two queues each, and neither has the other's.
    ours = start_member(group, topic, *words)
    until(lambda: len(owned(java, topic)) == 2, "Java to give up two queues", 60)
    before = len(ours.texts)
    send(16)
    until(lambda: len(set(java_texts(java)) | set(ours.texts)) >= 24, "all messages, shared", 60)
    mine = {int(str(each["queue"])) for each in ours.got[before:]}
    assert mine == {0, 1, 2, 3} - owned(java, topic)

    # A leave: SIGTERM drains, commits and unregisters; Java takes the queues back.
    assert ours.process.stop() == 0
    until(lambda: len(owned(java, topic)) == 4, "Java to have all queues", 60)
    send(8)
    until(lambda: set(java_texts(java)) | set(ours.texts) >= set(sent), "nothing lost", 60)
    if orderly:
        # The lock at the broker hands a queue over with its offset. Without one a new member may begin
        # before the old one has committed: RocketMQ delivers twice then, but never loses.
        assert sorted(java_texts(java) + ours.texts) == sorted(sent)

    # kill -9: nothing is unregistered or committed; its queues come back, doubles are allowed.
    killed = start_member(group, topic, *words)
    until(lambda: len(owned(java, topic)) == 2, "Java to give up two queues again", 60)
    send(8)
    until(lambda: len(set(java_texts(java)) | set(ours.texts) | set(killed.texts)) >= 40, "40", 60)
    killed.process.kill()
    send(8)
    until(lambda: len(owned(java, topic)) == 4, "Java to have the dead member's queues", 120)
    until(
        lambda: set(java_texts(java)) | set(ours.texts) | set(killed.texts) >= set(sent),
        "nothing lost",
        120,
    )
