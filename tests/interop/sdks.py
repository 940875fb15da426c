"""The SDKs of RocketMQ 5, which speak gRPC, in processes of their own; they do what driver.py's lines say.

Commands: producer, send, recall; simple, receive, ack, change; push, release; shutdown; Python's also lite,
unsubscribe. A message comes as
classic clients have it: tag, keys and message group as the properties TAGS, KEYS and __SHARDINGKEY, the
number of the attempt as reconsume_times + 1; its `position` is the driver's own, by which it is acknowledged.
The user property fail_times=n makes a listener fail n times, hold=yes makes it wait for `release`,
check=ROLLBACK is the answer to a question about a transaction, else COMMIT.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.interop import toolchain
from tests.interop.driver import Driver, Json, Received
from tests.interop.processes import QUICK_JVM, quiet_jvm

NAMES = ("java", "python", "node", "go")
"""And "rust", which has simple consumers only, no recall and no TLS."""
ROOTS = "roots.pem"
"""File in a driver's folder: certificates that the SDKs for Python and Node trust. The others trust any."""

C = TypeVar("C", bound="Client")
Subscriptions = Mapping[str, str] | Iterable[Json]


def start(name: str, folder: Path, jvm: tuple[str, ...] = QUICK_JVM) -> Driver:
    """One of NAMES, or "rust". jvm: flags of Java's."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(folder), "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(folder / ROOTS)}
    return Driver(f"sdk-{name}", _command(name, folder, jvm), folder, env=env)


def _command(name: str, folder: Path, jvm: tuple[str, ...]) -> list[str]:
    if name == "java":
        java = [toolchain.java(), *jvm, *quiet_jvm(folder / "java-home")]
        return [*java, "-cp", toolchain.class_path("sdk-5.2.0"), "io.pocketmq.interop.Sdk"]
    if name == "go":
        return [str(toolchain.go_driver("sdk"))]
    if name == "rust":
        return [str(toolchain.rust_driver())]
    if name == "node":
        node, main = toolchain.node_driver("sdk")
        return [node, str(main)]
    return toolchain.python_driver()


class Sdk:
    """The clients of one test, at one endpoint; leaving shuts all of them down.

    They start side by side, since most wait for something as they do: each is waited for, and its failure
    is told, when it is first used.
    """

    def __init__(self, driver: Driver, endpoint: str, **account: object) -> None:
        """account: key and secret; tls=True."""
        self.driver = driver
        self.name = driver.name.removeprefix("sdk-")
        self._given = {"endpoint": endpoint, **{k: v for k, v in account.items() if v}}
        self._open: list[Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Some wait for the receives that they have open, and no test needs their answer.
        for client in reversed(self._open):
            self.driver.begin("shutdown", name=client.name)

    def producer(self, *topics: str, **more: int) -> "Producer":
        """more: attempts, for a send of the Java SDK."""
        return self._started(Producer, "producer", topics=topics, **more)

    def simple(
        self, group: str, subscriptions: Subscriptions, await_ms: int = 5_000
    ) -> "SimpleConsumer":
        if self.name == "rust":
            # Its deadline is this time, and the proxy serves none of less than five seconds.
            await_ms += 2_000
        words = {"group": group, "subscriptions": _listed(subscriptions), "await_ms": await_ms}
        return self._started(SimpleConsumer, "simple", **words)

    def push(self, group: str, subscriptions: Subscriptions) -> "Push":
        words = {"group": group, "subscriptions": _listed(subscriptions)}
        return self._started(Push, "push", **words)

    def lite(self, group: str, topic: str, *names: str) -> "Push":
        """A push consumer of lite topics; all, if none is named.

        Names of one letter: Python's asks for each letter of a name.
        """
        return self._started(Push, "lite", group=group, topic=topic, names=names)

    def release(self) -> None:
        """Listeners that hold a message return."""
        self.driver.call("release")

    def _started(self, kind: type[C], do: str, **words: Any) -> C:
        name = self.driver.unique(do)
        starting = self.driver.begin(do, name=name, **self._given, **words)
        client = kind(self.driver, name, starting)
        self._open.append(client)
        return client


def _listed(given: Subscriptions) -> list[Json]:
    if isinstance(given, Mapping):
        return [{"topic": topic, "expression": tags} for topic, tags in given.items()]
    return list(given)


class Client:
    def __init__(self, driver: Driver, name: str, starting: int) -> None:
        self.driver, self.name = driver, name
        self._starting: int | None = starting

    def until_started(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            self.driver.finish(starting)

    def _call(self, do: str, **words: Any) -> Any:
        self.until_started()
        return self.driver.call(do, **words)


class Producer(Client):
    def send(self, *messages: Json) -> list[Json]:
        """Each a dict of topic, body, tag, key, shard (the message group), lite, delay_ms, properties, end
        (of a transaction: COMMIT, ROLLBACK, or UNKNOWN, which leaves it open).

        Returns: msg_id and recall_handle of each.
        """
        found: list[Json] = self._call("send", producer=self.name, messages=messages)
        return found

    def recall(self, topic: str, handle: str) -> str:
        return str(self._call("recall", producer=self.name, topic=topic, handle=handle))

    @property
    def asked(self) -> list[str]:
        """The bodies of the half messages about which it was asked."""
        return [each.text for each in self.driver.checks.get(self.name, [])]


class SimpleConsumer(Client):
    def receive(self, count: int = 16, invisible_ms: int = 60_000) -> list[Received]:
        words = {"consumer": self.name, "count": count, "invisible_ms": invisible_ms}
        return [Received.of(each) for each in self._call("receive", **words)]

    def take(self, count: int, invisible_ms: int = 60_000) -> list[Received]:
        """Receive and acknowledge until there are so many."""
        found: list[Received] = []
        for _ in range(20):
            for each in self.receive(invisible_ms=invisible_ms):
                self.ack(each)
                found.append(each)
            if len(found) >= count:
                return found
        raise TimeoutError(f"{[each.text for each in found]}: {count} messages were expected")

    def ack(self, message: Received) -> None:
        self._call("ack", consumer=self.name, position=message.position)

    def change(self, message: Received, invisible_ms: int) -> None:
        words = {"position": message.position, "invisible_ms": invisible_ms}
        self._call("change", consumer=self.name, **words)


class Push(Client):
    @property
    def seen(self) -> list[tuple[str, int]]:
        """(body, attempt) of each call of the listener."""
        return [
            (each.message.text, each.message.reconsume_times + 1)
            for each in list(self.driver.consumed.get(self.name, []))
        ]

    def unsubscribe(self, lite: str) -> None:
        """Of a consumer of lite topics."""
        self._call("unsubscribe", consumer=self.name, lite=lite)

    def wait(self, count: int) -> list[tuple[str, int]]:
        """Until so many calls were made."""
        self.until_started()
        self.driver.wait(lambda: len(self.seen) >= count, f"{count} calls of a listener")
        return self.seen
