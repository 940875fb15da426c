"""ConsumerManager: who is in a group, what the group subscribes, whom a change is told to."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.events import Events
from pocketmq.broker.groups.client_channel import CHANNEL_EXPIRED_MS, ClientChannel
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.model.subscription import SubscriptionData, build_subscription
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.peer import Peer
from tests.broker.members import Member, open_connection


class Told:
    """Whom the manager told of a change, in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, set[Peer]]] = []

    def __call__(self, group: str, connections: list[Peer]) -> None:
        self.changes.append((group, set(connections)))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def events(told: Told) -> Events:
    made = Events()
    made.must_rebalance.to(told)
    return made


@pytest.fixture
def consumers(clock: ManualClock, events: Events) -> ConsumerManager:
    return ConsumerManager(clock, events)


def test_a_group_shows_its_members_and_its_last_attributes(
    consumers: ConsumerManager, clock: ManualClock
) -> None:
    """S64, S65, S66, S71: keyed by group; the last heartbeat's type, model and start win."""
    first = Member(consumers, clock, "c1", {"T": "*"})
    channel = ClientChannel(open_connection(clock), "c2", "GO", 317)
    consumers.register("g", channel, "CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_MAX", [])
    group = consumers.get("g")
    assert group is not None
    assert group.client_ids() == ["c1", "c2"]
    assert (group.consume_type, group.message_model) == ("CONSUME_ACTIVELY", "BROADCASTING")
    assert group.consume_from_where == "CONSUME_FROM_MAX"
    assert group.last_update_ms == clock.now_ms()
    assert group.find("c2") is channel
    first.heartbeat()
    assert group.consume_type == "CONSUME_PASSIVELY"
    assert consumers.get("other") is None


def test_a_second_member_makes_all_members_told(
    consumers: ConsumerManager, clock: ManualClock, told: Told
) -> None:
    """S67: a new connection is a change, told to the new one too; the same heartbeat again is no change."""
    one = Member(consumers, clock, "c1", {"T": "*"})
    assert told.changes == [("g", {one.connection})]
    two = Member(consumers, clock, "c2", {"T": "*"})
    assert told.changes[1:] == [("g", {one.connection, two.connection})]
    one.heartbeat()
    two.heartbeat()
    assert len(told.changes) == 2


def test_a_group_may_want_no_notices(
    consumers: ConsumerManager, clock: ManualClock, told: Told, events: Events
) -> None:
    """S67: notifyConsumerIdsChangedEnable=false; REGISTER is reported all the same."""
    registered: list[str] = []
    events.heartbeat_taken.to(lambda group, subscriptions: registered.append(group))
    channel = ClientChannel(open_connection(clock), "c1", "JAVA", 407)
    assert consumers.register("g", channel, "P", "C", "F", [SubscriptionData("T")], notify=False)
    assert told.changes == []
    assert registered == ["g"]


def test_only_a_greater_version_replaces_a_subscription(
    consumers: ConsumerManager, clock: ManualClock, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """S68, S69: replaced silently to the members, with OLD and NEW in the log."""
    caplog.set_level(logging.INFO)
    member = Member(consumers, clock, "c1", {"T": "A"})
    changes = len(told.changes)
    older = [build_subscription("T", "B", sub_version=clock.now_ms() - 1)]
    same = [build_subscription("T", "B", sub_version=clock.now_ms())]
    for subscriptions in (older, same):
        member.subscriptions = [*subscriptions, SubscriptionData("%RETRY%g")]
        member.heartbeat()
        found = consumers.subscription("g", "T")
        assert found is not None
        assert found.sub_string == "A"
    clock.advance_ms(5)
    member.subscribe({"T": "B"})
    found = consumers.subscription("g", "T")
    assert found is not None
    assert found.code_set == {66}
    assert len(told.changes) == changes
    assert "subscription changed, add new topic, group: g" in caplog.text
    assert "subscription changed, group: g OLD: topic=T expression='A'" in caplog.text
    assert "NEW: topic=T expression='B'" in caplog.text


def test_what_an_operator_reads_of_a_group(
    consumers: ConsumerManager, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A line for each member that comes or leaves, and for a topic; none for a newer version of the same."""
    caplog.set_level(logging.INFO)
    one = Member(consumers, clock, "c1", {"T": "A"})
    clock.advance_ms(5)
    one.subscribe({"T": "A"})
    consumers.unregister("g", one.connection)
    said = [
        each.getMessage().partition(" address=")[0].partition(" version=")[0]
        for each in caplog.records
    ]
    assert said == [
        "member joined group=g client=c1",
        "subscription changed, add new topic, group: g topic=T expression='A' type=TAG",
        "member left group=g client=c1",
        "group has no member any more group=g",
    ]


def test_members_with_different_topics_remove_each_others(
    consumers: ConsumerManager, clock: ManualClock, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """S68, E2a: the last heartbeat decides the topics of the group, and each is a change."""
    one = Member(consumers, clock, "c1", {"TopicTest": "*"})
    two = Member(consumers, clock, "c2", {"mytest": "*"})
    assert consumers.subscription("g", "TopicTest") is None
    assert consumers.subscription("g", "mytest") is not None
    before = len(told.changes)
    one.heartbeat()
    assert consumers.subscription("g", "mytest") is None
    assert consumers.subscription("g", "TopicTest") is not None
    two.heartbeat()
    assert len(told.changes) == before + 2
    assert "subscription changed, group: g remove topic TopicTest" in caplog.text


def test_the_tag_does_not_flip_while_versions_stand(
    consumers: ConsumerManager, clock: ManualClock
) -> None:
    """S70, E2b: A's heartbeats do not bring A back while B's version is the greater one."""
    one = Member(consumers, clock, "c1", {"TopicTest": "A"})
    clock.advance_ms(10)
    two = Member(consumers, clock, "c2", {"TopicTest": "B"})
    for _ in range(10):
        one.heartbeat()
        two.heartbeat()
        found = consumers.subscription("g", "TopicTest")
        assert found is not None
        assert found.to_json() == {
            "classFilterMode": False,
            "codeSet": [66],
            "expressionType": "TAG",
            "subString": "B",
            "subVersion": clock.now_ms(),
            "tagsSet": ["B"],
            "topic": "TopicTest",
        }
    clock.advance_ms(10)
    one.subscribe({"TopicTest": "A"})
    found = consumers.subscription("g", "TopicTest")
    assert found is not None
    assert found.tags_set == {"A"}


def test_each_members_own_subscription_is_kept(
    consumers: ConsumerManager, clock: ManualClock
) -> None:
    """S92: beside the group's, which is one of them."""
    Member(consumers, clock, "c1", {"T": "A"})
    clock.advance_ms(1)
    Member(consumers, clock, "c2", {"T": "B"})
    own = {}
    group = consumers.get("g")
    assert group is not None
    for channel in group.channels.values():
        own[channel.client_id] = channel.subscriptions["T"].sub_string
    assert own == {"c1": "A", "c2": "B"}


def test_a_closed_connection_leaves_its_groups_at_once(
    consumers: ConsumerManager, clock: ManualClock, told: Told, events: Events
) -> None:
    """S72: the others are told; with the last member the group goes."""
    gone: list[str] = []
    events.group_offline.to(gone.append)
    one = Member(consumers, clock, "c1", {"T": "*"})
    two = Member(consumers, clock, "c2", {"T": "*"})
    one.die()
    assert told.changes[-1] == ("g", {two.connection})
    assert gone == []
    two.die()
    assert consumers.groups == {}
    assert gone == ["g"]
    two.die()
    assert gone == ["g"]


def test_a_client_that_says_good_bye_leaves_one_group_only(
    consumers: ConsumerManager, clock: ManualClock, told: Told
) -> None:
    """UNREGISTER_CLIENT names a group; the client's other group stays."""
    member = Member(consumers, clock, "c1", {"T": "*"})
    channel = ClientChannel(member.connection, "c1", "JAVA", 407)
    consumers.register("h", channel, "P", "C", "F", [SubscriptionData("T")])
    member.leave()
    assert set(consumers.groups) == {"h"}
    consumers.unregister("absent", member.connection)
    consumers.connection_closed(member.connection)
    assert consumers.groups == {}


def test_a_silent_member_expires_after_two_minutes_unannounced(
    consumers: ConsumerManager, clock: ManualClock, told: Told
) -> None:
    """S72: 120 s without a heartbeat; the scan notifies no member, and a jump of the wall clock ends none."""
    one = Member(consumers, clock, "c1", {"T": "*"})
    Member(consumers, clock, "c2", {"T": "*"})
    clock.jump_ms(10 * CHANNEL_EXPIRED_MS)
    consumers.scan()
    clock.advance_ms(CHANNEL_EXPIRED_MS)
    one.heartbeat()
    before = len(told.changes)
    clock.advance_ms(1)
    consumers.scan()
    group = consumers.get("g")
    assert group is not None
    assert group.client_ids() == ["c1"]
    assert len(told.changes) == before
    clock.advance_ms(CHANNEL_EXPIRED_MS + 1)
    consumers.scan()
    assert consumers.groups == {}


def test_another_client_id_on_a_known_connection_replaces_it(
    consumers: ConsumerManager, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged as the bug of the client that it is; no second member."""
    member = Member(consumers, clock, "c1", {"T": "*"})
    member.client_id = "c9"
    member.heartbeat()
    group = consumers.get("g")
    assert group is not None
    assert group.client_ids() == ["c9"]
    assert "clientId not equal" in caplog.text


def test_who_subscribes_a_topic(consumers: ConsumerManager, clock: ManualClock) -> None:
    Member(consumers, clock, "c1", {"T": "*"})
    Member(consumers, clock, "c2", {"U": "*"}, group="h")
    assert consumers.groups_of_topic("T") == {"g"}
    assert consumers.groups_of_topic("U") == {"h"}


class _Model:
    """The rules of the head of consumer_manager.py, written down once more as plain sets."""

    def __init__(self) -> None:
        self.table: dict[str, int] = {}
        self.members: set[int] = set()

    def heartbeat(self, member: int, asked: dict[str, int]) -> bool:
        changed = member not in self.members
        self.members.add(member)
        for topic, version in asked.items():
            changed |= topic not in self.table
            self.table[topic] = max(version, self.table.get(topic, version))
        for topic in set(self.table) - set(asked):
            del self.table[topic]
            changed = True
        return changed

    def close(self, member: int) -> None:
        self.members.discard(member)
        if not self.members:
            self.table = {}


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("beat"),
            st.integers(0, 3),
            st.dictionaries(st.sampled_from("TUV"), st.integers(0, 5), max_size=3),
        ),
        st.tuples(st.just("close"), st.integers(0, 3), st.just({})),
    ),
    max_size=30,
)


@given(_STEPS)
def test_heartbeats_and_closes_in_any_order_match_the_model(steps: list[Any]) -> None:
    """S67, S68, S72 against a model: versions only grow, absent topics go, changes are told."""
    clock, told, model, events = ManualClock(), Told(), _Model(), Events()
    events.must_rebalance.to(told)
    consumers = ConsumerManager(clock, events)
    connections = [open_connection(clock) for _ in range(4)]
    for kind, member, asked in steps:
        if kind == "close":
            consumers.connection_closed(connections[member])
            model.close(member)
        else:
            before = len(told.changes)
            channel = ClientChannel(connections[member], f"c{member}", "JAVA", 407)
            subscriptions = [
                build_subscription(topic, "*", sub_version=version)
                for topic, version in asked.items()
            ]
            changed = consumers.register("g", channel, "P", "C", "F", subscriptions)
            assert changed == model.heartbeat(member, asked)
            assert len(told.changes) - before == int(changed)
        group = consumers.get("g")
        assert (group is None) == (not model.members)
        if group is not None:
            assert {s.topic: s.sub_version for s in group.subscriptions.values()} == model.table
            assert set(group.channels) == {connections[number] for number in model.members}
