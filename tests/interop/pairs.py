"""Pairs of a master and a slave, and what their logs, queues and tables hold."""

from pocketmq.client import (
    Message,
)
from pocketmq.client.sync import Producer
from tests.interop.brokers import RunningBroker
from tests.kit.waiting import until

FILE = 1 << 20


def log_of(broker: RunningBroker) -> bytes:
    """The whole log, without the zeros behind its end."""
    files = sorted((broker.store / "commitlog").glob("*"))
    return b"".join(path.read_bytes() for path in files if path.stat().st_size == FILE).rstrip(
        b"\0"
    )


def queues_of(broker: RunningBroker) -> dict[str, bytes]:
    """The entries of each queue that has any."""
    root = broker.store / "consumequeue"
    found: dict[str, bytes] = {}
    for folder in sorted(root.glob("*/*")):
        entries = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")
        if entries:
            found[str(folder.relative_to(root))] = entries
    return found


def send(broker: RunningBroker, count: int, topic: str = "Replicated") -> None:
    # Many messages are small ones: the logs are compared again and again.
    size_max = 3_000 if count < 10_000 else 100
    with Producer("replicas", name_server=broker.namesrv) as producer:
        sent = [
            producer.begin_send(
                Message(topic, b"%d " % number + b"x" * (number % size_max), tags=f"t{number % 3}")
            )
            for number in range(count)
        ]
        for each in sent:
            each.result()


def follow(master: RunningBroker, slave: RunningBroker) -> None:
    """Wait until the slave has the log, the queues and the topics."""
    until(lambda: log_of(slave) == log_of(master), "the slave has the log", 120)
    until(lambda: queues_of(slave) == queues_of(master), "the slave has the queues", 120)
