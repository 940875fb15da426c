"""StrictGroups: the members that are there decide, everybody else is told why."""

import pytest

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.modes.strict import StrictGroups
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.connection import Connection
from tests.broker.members import Member, open_connection


class Door:
    """A strict group g with its members."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.consumers = ConsumerManager(self.clock)
        self.strict = StrictGroups()

    def ask(
        self, connection: Connection, client_id: str, tags: str, topic: str = "T"
    ) -> str | None:
        asked = {
            topic: build_subscription(topic, tags),
            "%RETRY%g": build_subscription("%RETRY%g", "*"),
        }
        return self.strict.check(self.consumers.get("g"), "g", connection, client_id, asked)

    def member(self, client_id: str, tags: str) -> Member:
        return Member(self.consumers, self.clock, client_id, {"T": tags})


@pytest.fixture
def door() -> Door:
    return Door()


def test_the_first_member_gets_in_whatever_it_asks(door: Door) -> None:
    assert door.ask(open_connection(door.clock), "c1", "A") is None


def test_who_asks_the_same_gets_in_however_it_is_written(door: Door) -> None:
    door.member("c1", "A || B")
    assert door.ask(open_connection(door.clock), "c2", "B||A") is None


@pytest.mark.parametrize(("topic", "tags"), [("T", "B"), ("T", "*"), ("Other", "A")])
def test_who_asks_for_something_else_is_told_both_subscriptions(
    door: Door, topic: str, tags: str
) -> None:
    door.member("c1", "A")
    connection = open_connection(door.clock)
    remark = door.ask(connection, "c2", tags, topic)
    assert remark is not None
    for part in ("group g is strict", "c1", "c2", "[T: A]", f"[{topic}: {tags}]"):
        assert part in remark
    assert door.strict.remark("g", connection) == remark
    assert door.strict.remark("other", connection) is None


def test_the_same_client_over_a_new_connection_is_nobody_else(door: Door) -> None:
    door.member("c1", "A")
    assert door.ask(open_connection(door.clock), "c1", "B") is None


def test_who_was_refused_gets_in_when_those_that_differ_are_gone(door: Door) -> None:
    first = door.member("c1", "A")
    connection = open_connection(door.clock)
    assert door.ask(connection, "c2", "B") is not None
    first.leave()
    assert door.ask(connection, "c2", "B") is None
    assert door.strict.remark("g", connection) is None
    assert door.strict.refused == {}


def test_a_connection_that_ends_is_forgotten(door: Door) -> None:
    door.member("c1", "A")
    connection = open_connection(door.clock)
    door.ask(connection, "c2", "B")
    door.strict.connection_closed(connection)
    assert door.strict.refused == {}
