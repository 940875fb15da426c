"""IsolatedGroups in random plays: each message reaches one subscriber, whatever members do."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.isolated_broker import (
    HOST,
    KEEP_MS,
    TOPICS,
    Broker,
    Client,
    wants,
)

SUBSCRIPTIONS = ["A", "B", "A || B", "B || C", "*", "Aa", "BB || C", "sql:TAGS = 'A'"]


# Aa and BB have the same code.
TAGS = ["A", "B", "C", "Aa", "BB", ""]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    config = StoreConfig(store_path_root_dir=str(tmp_path_factory.mktemp("store")))
    opened = MessageStore(config, clock=SystemClock(), store_host=HOST)
    with asyncio.Runner() as runner:
        runner.run(opened.__aenter__())
        yield opened
        runner.run(opened.__aexit__(None, None, None))


@pytest.fixture
def broker(store: MessageStore, tmp_path: Path) -> Broker:
    return Broker(store, tmp_path)


@pytest.fixture
def topic() -> str:
    return f"Topic{next(TOPICS)}"


class Model(RuleBasedStateMachine):
    """Members come, go, change their minds; messages are sent; the broker restarts."""

    store: MessageStore
    folder: Path

    @initialize()
    def begin(self) -> None:
        self.topic = f"Topic{next(TOPICS)}"
        self.broker = Broker(self.store, self.folder)
        self.clients: list[Client] = []
        self.names = itertools.count(1)
        self.got: Counter[int] = Counter()
        self.tags: list[str] = []
        # Offsets that a member asked for, or was waited for to ask for, when they were sent.
        self.promised: set[int] = set()

    def _collect(self, client: Client) -> None:
        for _, _, offset in client.got:
            assert wants(client.asks[self.topic], self.tags[offset])
            self.got[offset] += 1
        client.got.clear()

    @rule(tag=st.sampled_from(TAGS))
    def send(self, tag: str) -> None:
        isolated = self.broker.groups.groups.get("g")
        live = [] if isolated is None else isolated.order.live()
        asked = any(wants(_text(each.subscriptions[self.topic].sub_string), tag) for each in live)
        offset = self.broker.send(self.topic, tag)
        assert offset == len(self.tags)
        self.tags.append(tag)
        if asked:
            self.promised.add(offset)

    @precondition(lambda self: len(self.clients) < 4)
    @rule(subscription=st.sampled_from(SUBSCRIPTIONS))
    def join(self, subscription: str) -> None:
        """One client per sub-group: how several share queues is the clients' matter."""
        if any(each.asks[self.topic] == subscription for each in self.clients):
            return
        name = f"c{next(self.names)}"
        self.clients.append(self.broker.join(name, {self.topic: subscription}))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.member.die()
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=st.sampled_from(SUBSCRIPTIONS))
    def change(self, data: st.DataObject, subscription: str) -> None:
        if any(each.asks[self.topic] == subscription for each in self.clients):
            return
        data.draw(st.sampled_from(self.clients)).subscribe({self.topic: subscription})

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), count=st.integers(1, 3))
    def pull(self, data: st.DataObject, count: int) -> None:
        data.draw(st.sampled_from(self.clients)).pull(self.topic, count=count)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.consume(self.topic)
        self._collect(client)

    @rule(ms=st.sampled_from([1_000, KEEP_MS // 2, KEEP_MS]))
    def wait(self, ms: int) -> None:
        self.broker.tick(ms)

    @rule()
    def restart(self) -> None:
        self.broker.restart()
        for client in self.clients:
            client.reconnect()

    def teardown(self) -> None:
        """All that were promised are consumed once, when a member asks for them in the end."""
        if not hasattr(self, "tags"):
            return
        last = self.broker.join("last", {self.topic: "*"})
        for _ in range(3):
            self.broker.tick(KEEP_MS)
            for client in [*self.clients, last]:
                client.drain(self.topic)
                self._collect(client)
        assert {offset for offset in self.promised if not self.got[offset]} == set()
        assert {offset for offset, count in self.got.items() if count > 1} == set()


def _text(sub_string: str) -> str:
    return f"sql:{sub_string}" if "=" in sub_string else sub_string


def test_each_message_reaches_one_subscriber_in_random_plays(
    store: MessageStore, tmp_path: Path
) -> None:
    """Played at random."""
    machine = type("Played", (Model,), {"store": store, "folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
