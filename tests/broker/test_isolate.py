"""IsolatedGroups: each message to exactly one of those that ask for it, while members come and go.

The rules are played on a real store against a model of RocketMQ's clients: a client asks where to continue,
pulls, holds what it got, consumes and commits; killed, it loses what it holds; told that its offset moved,
it begins there.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore, StoreConfig
from tests.broker.isolated_broker import (
    HOST,
    KEEP_MS,
    REMEMBER_MS,
    TOPICS,
    Broker,
    Client,
)


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


def test_two_tags_in_one_group_reach_those_who_asked(broker: Broker, topic: str) -> None:
    """E2b: every queue serves both members, each with its own tag."""
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "ABABBA":
        broker.send(topic, tag)
    assert one.drain(topic) == [0, 2, 5]
    assert two.drain(topic) == [1, 3, 4]
    assert broker.offsets.query("g", topic, 0) == 6


def test_a_message_that_two_ask_for_goes_to_who_came_first(broker: Broker, topic: str) -> None:
    first = broker.join("c1", {topic: "A || B"})
    second = broker.join("c2", {topic: "B || C"})
    for tag in "ABC":
        broker.send(topic, tag)
    assert second.drain(topic) == [2]
    assert first.drain(topic) == [0, 1]


def test_members_see_only_those_who_ask_the_same(broker: Broker, topic: str) -> None:
    """The consumer list is what clients share queues by; locks are the sub-group's own too."""
    clients = [
        broker.join(f"c{number}", {topic: tags}) for number, tags in enumerate(["A", "B", "A"])
    ]
    isolated = broker.groups.groups["g"]
    ids = [
        sorted(isolated.of(client.member.connection).connections.values())  # type: ignore[union-attr]
        for client in clients
    ]
    assert ids == [["c0", "c2"], ["c1"], ["c0", "c2"]]
    locks = [broker.groups.lock_group("g", f"c{number}") for number in range(3)]
    assert locks[0] == locks[2] != locks[1]
    assert (
        broker.groups.lock_group("g", "absent") == broker.groups.lock_group("other", "c0")[:0] + "g"
    )


def test_a_rolling_change_loses_and_doubles_nothing(broker: Broker, topic: str) -> None:
    """tagA -> tagA || tagC: the old ones keep A until the last of them has left for good."""
    old = broker.join("old", {topic: "A"})
    for tag in "AAC":
        broker.send(topic, tag)
    assert old.drain(topic) == [0, 1]
    for tag in "ACA":
        broker.send(topic, tag)
    new = broker.join("new", {topic: "A || C"})
    assert new.drain(topic) == [4]
    old.pull(topic)  # held, never consumed
    old.member.leave()
    broker.send(topic, "A")
    broker.tick(KEEP_MS - 1)
    assert new.drain(topic) == []
    broker.tick(1)
    assert new.drain(topic) == [3, 5, 6]
    assert broker.offsets.query("g", topic, 0) == 7


def test_what_was_in_flight_beyond_the_commit_is_not_passed_over(
    broker: Broker, topic: str
) -> None:
    """The heir has pulled further than it committed when the other leaves: it is sent back."""
    old, new = broker.join("old", {topic: "A"}), broker.join("new", {topic: "A || C"})
    for tag in "ACAC":
        broker.send(topic, tag)
    old.pull(topic, count=1)
    old.consume(topic)
    new.pull(topic)  # holds both C, has passed both A
    old.member.die()
    broker.tick(KEEP_MS)
    assert new.drain(topic) == [1, 2, 3]


def test_a_sub_group_that_comes_back_in_time_has_lost_nothing(broker: Broker, topic: str) -> None:
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "*"})
    broker.send(topic, "A")
    one.member.die()
    broker.tick(KEEP_MS // 2)
    assert two.drain(topic) == []
    again = broker.join("c1", {topic: "A"})
    broker.tick(KEEP_MS * 2)
    assert again.drain(topic) == [0]
    assert two.drain(topic) == []


def test_what_nobody_asks_for_any_more_waits_for_who_asks_again(broker: Broker, topic: str) -> None:
    """A sub-group left for good does not hold others up, and its messages are not lost (invariant 4)."""
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "AB":
        broker.send(topic, tag)
    two.drain(topic)
    two.member.leave()
    for tag in "BAB":
        broker.send(topic, tag)
    broker.tick(KEEP_MS)
    assert one.drain(topic) == [0, 3]
    assert broker.offsets.query("g", topic, 0) == 5
    broker.send(topic, "A")
    later = broker.join("c3", {topic: "B || C"})
    assert later.drain(topic) == [2, 4]
    assert one.drain(topic) == [5]


def test_what_is_not_asked_for_in_time_is_forgotten(broker: Broker, topic: str) -> None:
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    two.drain(topic)
    two.member.leave()
    broker.tick(KEEP_MS)
    broker.send(topic, "B")
    one.drain(topic)
    broker.tick(REMEMBER_MS)
    assert len(broker.groups.groups["g"].order.sub_groups) == 1
    assert broker.join("c3", {topic: "B"}).drain(topic) == []


def test_a_settled_sub_group_that_others_cover_is_dropped(broker: Broker, topic: str) -> None:
    """A group that rolls out a change every day does not grow."""
    before: Client | None = None
    for number in range(10):
        client = broker.join(f"c{number}", {topic: " || ".join(["A", *"BCDEFGHIJK"[:number]])})
        broker.send(topic, "A")
        client.drain(topic)
        if before is not None:
            before.member.leave()
        before = client
        broker.tick(KEEP_MS)
        client.drain(topic)
        broker.tick(1_000)
    assert len(broker.groups.groups["g"].order.sub_groups) == 1
    assert broker.offsets.query("g", topic, 0) == 10


def test_old_offsets_are_inherited_and_the_lowest_is_shown(broker: Broker, topic: str) -> None:
    for tag in "ABAB":
        broker.send(topic, tag)
    broker.offsets.place("g", topic, 0, 2)
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    assert two.drain(topic) == [3]
    assert broker.offsets.query("g", topic, 0) == 2
    assert one.drain(topic) == [2]
    assert broker.offsets.query("g", topic, 0) == 4


def test_messages_wait_for_a_member_that_never_pulled(broker: Broker, topic: str) -> None:
    """A slow starter: the other begins, commits, and so sets the group's offset, before it asks for one."""
    slow, quick = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "A || B"})
    for tag in "ABA":
        broker.send(topic, tag)
    assert quick.drain(topic) == [1]
    assert slow.drain(topic) == [0, 2]

    other = f"{topic}x"
    slow.member.subscribe({topic: "A", other: "A"})
    quick.member.subscribe({topic: "A || B", other: "A || B"})
    for tag in "ABA":
        broker.send(other, tag)
    assert quick.drain(other) == [1]
    slow.member.die()
    broker.tick(KEEP_MS)
    assert quick.drain(other) == [0, 2]


def test_a_retried_message_goes_to_who_asks_for_what_it_once_was(
    broker: Broker, topic: str
) -> None:
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    retry = "%RETRY%g"
    first = broker.store.max_offset(retry, 0)
    broker.offsets.place("g", retry, 0, first)
    for client in (one, two):
        client.next[retry, 0] = first
    for tag in "BAB":
        broker.send(retry, tag, more=b"RETRY_TOPIC\x01%s\x02" % topic.encode())
    assert one.drain(retry) == [first + 1]
    assert two.drain(retry) == [first, first + 2]


def test_a_reset_holds_for_every_sub_group(broker: Broker, topic: str) -> None:
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "ABAB":
        broker.send(topic, tag)
    one.drain(topic)
    two.drain(topic)
    broker.groups.reset("g", topic, 0, 1)
    # What the clients still commit before they have gone back does not count.
    one.broker.groups.commit("g", one.member.connection, topic, 0, 4)
    assert one.drain(topic) == [2]
    assert two.drain(topic) == [1, 3]
    broker.groups.reset("g", topic, 0, 4)
    assert one.drain(topic) == two.drain(topic) == []


def test_what_comes_in_place_of_lost_messages_is_not_passed_over(
    broker: Broker, topic: str
) -> None:
    """A power cut took the end of the log; clients continue, and commit, where they were."""
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "ABABAB":
        broker.send(topic, tag)
    assert one.drain(topic) == [0, 2, 4]
    assert two.drain(topic, 0) == [1, 3, 5]
    broker.restart()
    # As if only two had been on the disk, and four others were sent since.
    broker.groups.cut(lambda *_: 2)
    broker.offsets.cut(lambda *_: 2)
    for each in (one, two):
        each.reconnect()
    one.consume(topic)
    assert broker.offsets.query("g", topic, 0) == 2
    assert one.drain(topic) == [2, 4]
    assert two.drain(topic) == [3, 5]
    assert broker.offsets.query("g", topic, 0) == 6


def test_a_changed_subscription_goes_back_to_its_new_sub_group(broker: Broker, topic: str) -> None:
    ahead, behind = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "ABAB":
        broker.send(topic, tag)
    ahead.drain(topic)
    behind.pull(topic, count=1)
    behind.consume(topic)
    ahead.subscribe({topic: "B"})
    behind.member.die()
    assert ahead.drain(topic) == [3]


def test_unread_messages_are_kept_when_the_others_leave_first(broker: Broker, topic: str) -> None:
    """Found by 15,000 random plays: no member was left that had come to the queue."""
    slow = broker.join("c1", {topic: "A"})
    broker.send(topic, "A")
    quick = broker.join("c2", {topic: "B"})
    assert quick.drain(topic) == []
    quick.member.die()
    broker.tick(KEEP_MS)
    slow.member.die()
    broker.tick(KEEP_MS)
    assert broker.join("c3", {topic: "*"}).drain(topic) == [0]


def test_a_debt_held_while_another_came_is_paid_once(broker: Broker, topic: str) -> None:
    """Found by 30,000 random plays: what its client commits before it goes back settles the first."""
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B || C"})
    for tag in "CA":
        broker.send(topic, tag)
    one.member.die()
    two.member.die()
    other = broker.join("c3", {topic: "Aa"})
    other.drain(topic)
    broker.tick(KEEP_MS)
    broker.join("c4", {topic: "B || C"}).member.die()
    broker.tick(KEEP_MS // 2)
    heir = broker.join("c5", {topic: "*"})
    heir.pull(topic, count=1)
    broker.tick(KEEP_MS // 2)  # c4's have left for good: the heir is to go back for C
    heir.consume(topic)
    assert [offset for _, _, offset in heir.got] == [1]
    assert heir.drain(topic) == [0]


def test_the_administrators_see_all_that_the_members_ask(broker: Broker, topic: str) -> None:
    broker.join("c1", {topic: "A || B"})
    broker.clock.advance_ms(5)
    broker.join("c2", {topic: "C", "Other": "*"})
    group = broker.consumers.groups["g"]
    channel = next(iter(group.channels.values()))
    shown = broker.groups.merged(group, channel)
    assert shown is not None
    by_topic = {each.topic: each for each in shown}
    assert by_topic[topic].tags_set == {"A", "B", "C"}
    assert by_topic["Other"].is_all


def test_leaving_the_mode_continues_at_the_lowest_offset(broker: Broker, topic: str) -> None:
    one, two = broker.join("c1", {topic: "A"}), broker.join("c2", {topic: "B"})
    for tag in "ABAB":
        broker.send(topic, tag)
    two.drain(topic)
    one.pull(topic, count=1)
    one.consume(topic)
    broker.config.group_mode = "compatible"
    broker.tick()
    assert broker.groups.groups == {}
    assert broker.offsets.query("g", topic, 0) == 1
