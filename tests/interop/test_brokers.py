"""`pocketmq up --brokers 2` under official Java clients."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import SMALL
from tests.interop.driver import PeerError, Sent, Session, message
from tests.interop.processes import Process
from tests.kit.ports import free_ports
from tests.kit.waiting import until

FIRST = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Process, dict[str, str]]]:
    """Two broker processes behind one name server, and the words of their ready line."""
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SMALL.items()))
    namesrv, port = free_ports(2)
    words = ["up", "--brokers", "2", "--broker-name", "broker", "-c", str(conf)]
    words += ["--data", str(tmp_path / "store")]
    words += ["--namesrv-port", str(namesrv), "--broker-port", str(port)]
    program = str(Path(sys.executable).parent / "pocketmq")
    process = Process([program, *words], tmp_path / "pocketmq.out", cwd=tmp_path)
    try:
        line = process.wait_for_line("ready")
        yield process, dict(word.split("=", 1) for word in line.split()[1:])
    finally:
        process.stop()


def test_official_clients_lose_nothing_when_a_broker_is_killed(
    site: tuple[Process, dict[str, str]], java_498: Session, topic: str, group: str
) -> None:
    """Queues on each broker, a producer that spreads, members that take all; kill -9 of one broker."""
    process, ready = site
    namesrv = ready["namesrv"]
    producer = java_498.producer(namesrv, group + "-p", settings={"sendMsgTimeout": 3_000})
    # The topic is made by the first send, on every broker of the route that the client was given.
    first: list[Sent] = []

    def at_both() -> bool:
        # A route that the client asks for in between may have the first broker alone, for 30 s.
        first.extend(producer.send(*(message(topic, f"m{len(first) + i}") for i in range(24))))
        return {each.broker for each in first} == {"broker", "broker-1"}

    until(at_both, "sends at both brokers")
    members = [java_498.push_consumer(namesrv, group, topic, settings=FIRST) for _ in range(2)]

    def received() -> set[str]:
        return {got.text for each in members for got in each.received}

    until(
        lambda: received() >= {f"m{i}" for i in range(len(first))},
        "every message at one of the members",
    )

    def shared_out() -> bool:
        one, other = ({q for q in each.assigned() if q.topic == topic} for each in members)
        return one.isdisjoint(other) and {q.broker for q in one | other} == {"broker", "broker-1"}

    until(shared_out, "queues of both brokers, each at one member")

    flood = producer.begin_flood(topic, prefix=group, size=200)
    until(
        lambda: {sent.broker for _, sent in producer.acks} >= {"broker", "broker-1"}, "acks of both"
    )
    before = len(producer.acks)
    os.kill(int(ready["pids"].split(",")[1]), signal.SIGKILL)
    until(lambda: "a broker serves again name=broker-1" in process.printed(), "its restart")
    # The other broker took messages all the time.
    until(lambda: len(producer.acks) > before, "more acks")
    producer.end_flood(flood)

    def again() -> bool:
        return "broker-1" in {each.broker for each in producer.send(message(topic, "again"))}

    until(again, "a send to the broker that came back", ignoring=PeerError)
    acknowledged = (
        {body for body, _ in producer.acks} | {f"m{i}" for i in range(len(first))} | {"again"}
    )
    fresh = java_498.push_consumer(namesrv, group + "-fresh", topic, settings=FIRST)
    until(
        lambda: {got.text.rstrip("\0") for got in fresh.received} >= acknowledged,
        "all that was acknowledged",
    )
