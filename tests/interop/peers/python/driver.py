"""The official Python SDK of RocketMQ 5 at work: python driver.py ENDPOINT SCENARIO

Prints one JSON object: what it saw. The topics are there already, each with its type.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WITHIN_S = 60


def message(topic: str, body: str, **fields: Any) -> Message:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def seen(received: Message) -> dict[str, Any]:
    return {
        "body": received.body.decode(),
        "tag": received.tag,
        "keys": sorted(received.keys or ()),
        "properties": received.properties,
        "group": received.message_group,
        "attempt": received.delivery_attempt,
        "corrupted": received.corrupted,
    }


class Collected(MessageListener):  # type: ignore[misc]
    """Keeps what comes; `fails` says which attempts do not succeed."""

    def __init__(self, count: int, fails: Callable[[Message], bool] = lambda _: False) -> None:
        self.seen: list[dict[str, Any]] = []
        self.whole = threading.Event()
        self._count, self._fails = count, fails

    def consume(self, received: Message) -> ConsumeResult:
        self.seen.append(seen(received))
        if len(self.seen) >= self._count:
            self.whole.set()
        return ConsumeResult.FAILURE if self._fails(received) else ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits whatever it is asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, received: Message) -> TransactionResolution:
        self.asked.append(received.body.decode())
        return TransactionResolution.COMMIT


class Run:
    def __init__(self, endpoint: str) -> None:
        self.config = ClientConfiguration(endpoint, Credentials())

    def simple(
        self, topic: str, group: str, count: int, expression: str = "*", *, invisible_s: int = 60
    ) -> list[dict[str, Any]]:
        consumer = SimpleConsumer(self.config, group, {topic: FilterExpression(expression)}, 5)
        consumer.startup()
        found: list[dict[str, Any]] = []
        end = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < end:
            for each in consumer.receive(32, invisible_s) or ():
                found.append(seen(each))
                consumer.ack(each)
        consumer.shutdown()
        return found

    def messages(self) -> dict[str, Any]:
        """Normal, FIFO and delayed messages; a filter; a simple consumer."""
        producer = Producer(self.config, ("normal", "fifo", "delay"))
        producer.startup()
        plain = message("normal", "plain", tag="A", keys="k1")
        plain.add_property("colour", "blue")
        receipts = [producer.send(plain), producer.send(message("normal", "other", tag="B"))]
        for number in range(4):
            producer.send(message("fifo", str(number), message_group="order-1"))
        producer.send(message("delay", "later", delivery_timestamp=int(time.time()) + 2))
        found = {
            "ids": [each.message_id for each in receipts],
            "normal": self.simple("normal", "g-normal", 1, "A"),
            "fifo": self.simple("fifo", "g-fifo", 4),
            "delay": self.simple("delay", "g-delay", 1),
        }
        producer.shutdown()
        return found

    def transactions(self) -> dict[str, Any]:
        """One committed, one rolled back, one that its producer forgets and is asked about."""
        checker = Checker()
        producer = Producer(self.config, ("transaction",), checker)
        producer.startup()
        for body in ("committed", "rolled back", "forgotten"):
            transaction = producer.begin_transaction()
            producer.send(message("transaction", body), transaction)
            if body == "committed":
                transaction.commit()
            elif body == "rolled back":
                transaction.rollback()
        found = self.simple("transaction", "g-transaction", 2)
        producer.shutdown()
        return {"asked": checker.asked, "seen": found}

    def push(self) -> dict[str, Any]:
        """A push consumer that fails at the first attempt."""
        producer = Producer(self.config, ("pushed",))
        producer.startup()
        listener = Collected(3, lambda each: each.body == b"twice" and each.delivery_attempt == 1)
        consumer = PushConsumer(self.config, "g-push", listener, {"pushed": FilterExpression("*")})
        consumer.startup()
        producer.send(message("pushed", "once"))
        producer.send(message("pushed", "twice"))
        listener.whole.wait(WITHIN_S)
        consumer.shutdown()
        producer.shutdown()
        return {"seen": listener.seen}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(getattr(Run(sys.argv[1]), sys.argv[2])()) + "\n")
