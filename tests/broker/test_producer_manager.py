"""Producers that are connected, and which of them is asked."""

import asyncio

import pytest

from pocketmq.broker.groups.client_channel import CHANNEL_EXPIRED_MS, ClientChannel
from pocketmq.broker.groups.producer_manager import ProducerManager
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.connection import Connection
from tests.broker.members import open_connection


class _Open(asyncio.Transport):
    def __init__(self, *, closing: bool = False) -> None:
        super().__init__()
        self.closing = closing

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


@pytest.fixture
def producers(clock: ManualClock) -> ProducerManager:
    return ProducerManager(clock)


def join(
    producers: ProducerManager, clock: ManualClock, group: str, client_id: str
) -> tuple[Connection, _Open]:
    connection, transport = open_connection(clock), _Open()
    connection._transport = transport
    producers.register(group, ClientChannel(connection, client_id, "JAVA", 407))
    return connection, transport


def test_open_connections_of_a_group_are_asked_in_turn(
    producers: ProducerManager, clock: ManualClock
) -> None:
    """getAvailableChannel: round robin over those that can be written to."""
    (one, first), (two, _) = join(producers, clock, "g", "c1"), join(producers, clock, "g", "c2")
    assert {producers.available("g"), producers.available("g")} == {one, two}
    first.closing = True
    assert [producers.available("g") for _ in range(3)] == [two] * 3
    assert producers.available("absent") is None
    assert producers.available(None) is None


def test_a_client_id_has_a_connection_until_its_last_group_left(
    producers: ProducerManager, clock: ManualClock
) -> None:
    """PUSH_REPLY_MESSAGE looks a client up by its id."""
    connection, _ = join(producers, clock, "g", "c1")
    producers.register("h", ClientChannel(connection, "c1", "JAVA", 407))
    producers.unregister("g", connection)
    assert producers.find("c1") is connection
    producers.unregister("h", connection)
    assert producers.find("c1") is None
    assert producers.groups == {}


def test_a_reconnected_client_is_found_at_its_new_connection(
    producers: ProducerManager, clock: ManualClock
) -> None:
    """The old connection's end does not take the new one with it."""
    old, _ = join(producers, clock, "g", "c1")
    new, _ = join(producers, clock, "g", "c1")
    producers.connection_closed(old)
    assert producers.find("c1") is new
    assert [channel.connection for _, channel in producers.channels()] == [new]


def test_the_names_of_a_connection_and_of_all_are_bounded(
    producers: ProducerManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat of 227 KB had 9,000 of them, and took 6 MB; a client could send any number."""
    monkeypatch.setattr("pocketmq.broker.groups.producer_manager.GROUPS_MAX", 3)
    monkeypatch.setattr("pocketmq.broker.groups.producer_manager.REGISTERED_MAX", 4)
    (one, _), (two, _) = join(producers, clock, "a", "c1"), join(producers, clock, "a", "c2")

    def register(connection: Connection, group: str) -> bool:
        return producers.register(group, ClientChannel(connection, "c1", "JAVA", 407))

    assert [register(one, group) for group in "abcd"] == [True, True, True, False]
    assert not register(two, "b")
    producers.unregister("b", one)
    assert register(two, "b")
    assert set(producers.groups) == {"a", "b", "c"}


def test_a_silent_producer_is_closed_after_two_minutes(
    producers: ProducerManager, clock: ManualClock
) -> None:
    _, transport = join(producers, clock, "g", "c1")
    clock.advance_ms(CHANNEL_EXPIRED_MS)
    producers.scan()
    assert set(producers.groups) == {"g"}
    clock.advance_ms(1)
    producers.scan()
    assert producers.groups == {}
    assert transport.closing
