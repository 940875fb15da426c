"""Fixtures: brokers and official clients.

`broker` and `new_broker` run each test against PocketMQ and, with --reference, against the real
broker, so that a test that asks too much of RocketMQ shows itself. Drivers and the shared broker
live for the session; what a test starts with them ends with the test.
"""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pytest

from pocketmq.client import Producer
from tests.cli.servers import Server
from tests.interop import driver as drivers_
from tests.interop import mqadmin as mqadmin_
from tests.interop.brokers import RunningBroker, make_broker
from tests.interop.driver import Driver, Session
from tests.interop.mqadmin import Mqadmin
from tests.interop.toolchain import CLIENT_VERSIONS, TOOLS_VERSIONS
from tests.kit.missing import or_missing as or_missing
from tests.kit.waiting import until

BROKERS = [
    "pocketmq",
    pytest.param("rocketmq-4.9.7", marks=pytest.mark.reference),
]
JAVA_CLIENTS = [
    f"{version}-{header}" for version in CLIENT_VERSIONS for header in ("JSON", "ROCKETMQ")
]

T = TypeVar("T")

# Programs for other interpreters: what they import is not here.
collect_ignore = ["peers"]


class NewBroker(Protocol):
    """new_broker(key=value, ...) starts a broker of the test's own with these broker.conf keys."""

    def __call__(self, **config: object) -> RunningBroker: ...


class MakeTopic(Protocol):
    def __call__(
        self, broker: RunningBroker, topic: str, *, queues: int = 4, perm: int = 6
    ) -> str: ...


class Shared:
    """What lives for the whole session, started when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Any] = {}
        self._leave = ExitStack()

    def get(self, name: str, make: Callable[[], T], leave: Callable[[T], object]) -> T:
        if name not in self._made:
            made = or_missing(make)
            self._made[name] = made
            self._leave.callback(leave, made)
        return cast(T, self._made[name])

    def close(self) -> None:
        self._leave.close()

    def java(self, which: str) -> Driver:
        version, _, header = which.partition("-")
        return self.get(
            which, lambda: drivers_.java_client(version, self.folder, header=header), Driver.close
        )

    def mqadmin(self, version: str) -> Mqadmin:
        return self.get(
            f"mqadmin-{version}", lambda: mqadmin_.mqadmin(version, self.folder), Mqadmin.close
        )

    def broker(self, kind: str) -> RunningBroker:
        return self.get(
            f"broker-{kind}",
            lambda: make_broker(kind, self.folder / kind).start(),
            # A clean stop of the real broker takes seven seconds; the tests that need one stop their own.
            lambda broker: broker.stop() if broker.kind == "pocketmq" else broker.kill(),
        )


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("interop"))
    yield made
    made.close()


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest, shared: Shared) -> RunningBroker:
    """A running broker that many tests share: use `topic` and `group` for names of your own."""
    return shared.broker(request.param)


@pytest.fixture(scope="session")
def pocket_broker(shared: Shared) -> RunningBroker:
    """The shared PocketMQ broker, where the comparison is the test's own."""
    return shared.broker("pocketmq")


@pytest.fixture(scope="session")
def java_broker(shared: Shared) -> RunningBroker:
    """The shared real broker 4.9.7."""
    return shared.broker("rocketmq-4.9.7")


@pytest.fixture(params=BROKERS)
def new_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewBroker]:
    """Start brokers of the test's own; all are killed at the end."""
    with ExitStack() as leave:

        def start(**config: object) -> RunningBroker:
            place = tmp_path / f"broker{len(list(tmp_path.glob('broker*')))}"
            made = or_missing(lambda: make_broker(request.param, place, config=config))
            leave.callback(made.kill)
            return made.start()

        yield start


@pytest.fixture(params=["pocketmq", pytest.param("rocketmq-5.5.0", marks=pytest.mark.reference)])
def five_broker(
    request: pytest.FixtureRequest, tmp_path: Path, shared: Shared
) -> Iterator[RunningBroker]:
    """Ours, and with --reference the real broker that has what 5.x added."""
    if request.param == "pocketmq":
        yield shared.broker("pocketmq")
        return
    with ExitStack() as leave:
        broker = or_missing(lambda: make_broker(request.param, tmp_path / "b"))
        leave.callback(broker.kill)
        yield broker.start()


@pytest.fixture(params=JAVA_CLIENTS)
def java_client(request: pytest.FixtureRequest, shared: Shared) -> Iterator[Session]:
    """The official Java clients with both header encodings.

    Narrow with @pytest.mark.parametrize("java_client", ["4.9.8-JSON"], indirect=True).
    """
    with shared.java(request.param).session() as session:
        yield session


@pytest.fixture
def java_498(shared: Shared) -> Iterator[Session]:
    """The official Java client 4.9.8 with JSON headers."""
    with shared.java("4.9.8-JSON").session() as session:
        yield session


@pytest.fixture
def java_550(shared: Shared) -> Iterator[Session]:
    """The official Java client 5.5.0 with JSON headers."""
    with shared.java("5.5.0-JSON").session() as session:
        yield session


@pytest.fixture
def go_client(shared: Shared) -> Iterator[Session]:
    """The official Go client."""
    made = shared.get("go", lambda: drivers_.go_client(shared.folder), Driver.close)
    with made.session() as session:
        yield session


@pytest.fixture
def node_client(shared: Shared) -> Iterator[Session]:
    """ali-ons for Node.js."""
    made = shared.get("node", lambda: drivers_.node_client(shared.folder), Driver.close)
    with made.session() as session:
        yield session


@pytest.fixture(params=TOOLS_VERSIONS)
def mqadmin(request: pytest.FixtureRequest, shared: Shared) -> Mqadmin:
    """The official mqadmin; use mqadmin.at(broker.namesrv)."""
    return shared.mqadmin(request.param)


@pytest.fixture
def make_topic(shared: Shared) -> MakeTopic:
    """make_topic(broker, "T", queues=4, perm=6) creates a topic as an operator does."""
    tool = shared.mqadmin("4.9.7")

    def make(broker: RunningBroker, topic: str, *, queues: int = 4, perm: int = 6) -> str:
        words = ["-b", broker.address, "-t", topic, "-r", queues, "-w", queues, "-p", perm]
        printed = tool.at(broker.namesrv)("updateTopic", *words)
        assert "create topic to" in printed.out, printed
        until(
            lambda: topic in tool.at(broker.namesrv)("topicList").lines,
            f"the route of {topic} at the name server",
        )
        return topic

    return make


_NUMBERS = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"Topic{next(_NUMBERS)}"


@pytest.fixture
def group() -> str:
    """A group name that no other test uses."""
    return f"group{next(_NUMBERS)}"


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--replica-messages"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[RunningBroker]]:
    """Brokers that are started into it; killed at the end, the last first."""
    started: list[RunningBroker] = []
    yield started
    for broker in reversed(started):
        broker.kill()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Server]:
    """A name server that lives longer than a broker."""
    server = Server(tmp_path, "namesrv", "--port", "0")
    yield server
    server.kill()


@pytest.fixture
async def producer(broker: RunningBroker, group: str) -> AsyncIterator[Producer]:
    async with Producer(f"{group}-p", name_server=broker.namesrv) as made:
        yield made
