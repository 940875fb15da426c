"""GroupGuard: what it finds, when it says so, what it says is lost."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.events import Events
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.modes.guard import GroupGuard
from pocketmq.model.agreement import GroupFinding, Loss
from pocketmq.remoting.clock import ManualClock
from tests.broker.members import Member

GRACE_MS = 60_000


class Watched:
    """A consumer manager with a guard; `raised` is what its ticks raised."""

    def __init__(self, queue_count: int = 4) -> None:
        self.clock = ManualClock()
        self.events = Events()
        self.consumers = ConsumerManager(self.clock, self.events)
        self.raised: list[GroupFinding] = []
        self.isolated: set[str] = set()
        self.pullers: dict[int, str] = {}
        self.guard = GroupGuard(
            self.clock,
            self.consumers,
            lambda topic: queue_count,
            grace_ms=lambda: GRACE_MS,
            is_watched=lambda group: group not in self.isolated,
            holders=lambda group, topic: self.pullers,
        )
        self.events.members_changed.to(self.guard.members_changed)

    def join(self, client_id: str, subscriptions: dict[str, str], **more: str) -> Member:
        return Member(self.consumers, self.clock, client_id, subscriptions, **more)

    def pass_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.raised += self.guard.tick()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_differing_tags_name_both_clients_and_the_loss_by_queue(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """E2b: the group's subscription is B; A is lost everywhere, and B in the queues of A's member."""
    watched.join("c1", {"T": "A"})
    watched.pass_ms(1_000)
    since = watched.clock.now_ms()
    watched.join("c2", {"T": "B"})

    with caplog.at_level(logging.WARNING, "pocketmq.broker.modes.guard"):
        watched.pass_ms(GRACE_MS)

    [finding] = watched.raised
    assert (finding.group, finding.topic, finding.since_ms, finding.stored) == (
        "g",
        "T",
        since,
        "B",
    )
    assert [(camp.expression, camp.client_ids) for camp in finding.camps] == [
        ("A", ("c1",)),
        ("B", ("c2",)),
    ]
    assert set(finding.losses) == {
        Loss((0, 1), "c1", "A", ("c1",)),
        Loss((0, 1), "c1", "B", ("c2",)),
        Loss((2, 3), "c2", "A", ("c1",)),
    }
    [line] = caplog.messages
    for part in ("group g", "topic T", "[A]: c1", "[B]: c2", "queue 0,1", "groupMode=isolate"):
        assert part in line
    assert watched.guard.raised_count == watched.guard.active_count == 1


def test_two_topics_are_found_with_the_queues_that_nobody_reads(watched: Watched) -> None:
    """E2a: each member is allocated half of the other's topic and asks for nothing there."""
    watched.join("c1", {"TopicTest": "*"})
    watched.join("c2", {"mytest": "*"})
    watched.pass_ms(GRACE_MS)

    by_topic = {finding.topic: finding for finding in watched.raised}
    assert by_topic.keys() == {"TopicTest", "mytest"}
    assert set(by_topic["mytest"].losses) == {Loss((0, 1), None, "everything", ("c2",))}
    # The last heartbeat was c2's, so the broker does not know TopicTest at all.
    assert by_topic["TopicTest"].stored is None
    assert set(by_topic["TopicTest"].losses) == {
        Loss((0, 1), "c1", "everything", ("c1",)),
        Loss((2, 3), None, "everything", ("c1",)),
    }


def test_a_finding_is_raised_once_until_the_camps_change(watched: Watched) -> None:
    first = watched.join("c1", {"T": "A"})
    watched.join("c2", {"T": "B"})
    watched.pass_ms(GRACE_MS)
    for number in range(5):
        watched.join(f"more{number}", {"T": "B"})
        watched.pass_ms(GRACE_MS)
    assert len(watched.raised) == 1

    first.subscribe({"T": "C"})
    watched.pass_ms(GRACE_MS - 1)
    assert len(watched.raised) == 1
    watched.pass_ms(1)
    assert len(watched.raised) == 2
    assert watched.raised[1].since_ms == watched.raised[0].since_ms


def test_a_finding_ends_with_its_difference_and_can_return(watched: Watched) -> None:
    watched.join("c1", {"T": "A"})
    second = watched.join("c2", {"T": "B"})
    watched.pass_ms(GRACE_MS)
    second.die()
    assert watched.guard.findings() == []
    assert watched.guard.active_count == 0
    watched.join("c2", {"T": "B"})
    watched.pass_ms(GRACE_MS)
    assert len(watched.raised) == 2


def test_a_rolling_change_shorter_than_the_grace_raises_nothing(watched: Watched) -> None:
    """Members are replaced one by one, each new one asking for more."""
    members = [watched.join(f"old{number}", {"T": "A"}) for number in range(5)]
    for number, member in enumerate(members):
        member.leave()
        watched.join(f"new{number}", {"T": "A || C"})
        watched.pass_ms(GRACE_MS // 6)
        shown = watched.guard.findings("g")
        assert [finding.raised for finding in shown] == ([] if number == 4 else [False])
    watched.pass_ms(GRACE_MS * 2)
    assert watched.raised == []


def test_a_client_that_subscribes_while_it_starts_raises_nothing(watched: Watched) -> None:
    watched.join("c1", {"T": "A", "U": "*"})
    starting = watched.join("c2", {"T": "A"})
    watched.pass_ms(3_000)
    starting.subscribe({"T": "A", "U": "*"})
    watched.pass_ms(GRACE_MS * 2)
    assert watched.raised == []


def test_members_that_ask_the_same_in_other_words_are_alike(watched: Watched) -> None:
    watched.join("c1", {"T": "A || B"})
    watched.join("c2", {"T": " B||A "})
    watched.pass_ms(GRACE_MS)
    assert watched.raised == []
    assert watched.guard.findings() == []


def test_the_retry_topic_is_no_difference(watched: Watched) -> None:
    """A broadcasting member has no retry topic, one of 4.x and one of 5.x may differ in it."""
    watched.join("c1", {"T": "A"})
    watched.join("c2", {"T": "A"}, message_model="BROADCASTING")
    watched.pass_ms(GRACE_MS)
    assert watched.guard.findings() == []


def test_a_pull_consumer_without_subscriptions_is_no_difference(watched: Watched) -> None:
    watched.join("c1", {"T": "*"}, consume_type="CONSUME_ACTIVELY")
    watched.join("c2", {}, consume_type="CONSUME_ACTIVELY")
    watched.pass_ms(GRACE_MS)
    assert watched.guard.findings() == []


def test_a_group_whose_members_may_differ_is_not_watched(watched: Watched) -> None:
    watched.isolated.add("g")
    watched.join("c1", {"T": "A"})
    watched.join("c2", {"T": "B"})
    watched.pass_ms(GRACE_MS)
    assert watched.raised == []
    assert watched.guard.findings() == []
    watched.isolated.clear()
    watched.pass_ms(1_000)
    assert len(watched.raised) == 1


def test_observed_pulls_outweigh_the_average_strategy(
    watched: Watched,
) -> None:
    """The group may share its queues by another strategy: what the broker sees is true."""
    watched.join("c1", {"T": "A"})
    watched.join("c2", {"T": "B"})
    watched.pullers = {0: "c1", 1: "c2", 2: "c1", 3: "c2"}
    watched.pass_ms(GRACE_MS)
    assert Loss((0, 2), "c1", "B", ("c2",)) in watched.raised[0].losses


def test_tags_and_sql_in_one_group_differ(watched: Watched) -> None:
    watched.join("c1", {"T": "A"})
    watched.clock.advance_ms(1)
    watched.join("c2", {"T": "sql:a > 5"})
    watched.pass_ms(GRACE_MS)
    [finding] = watched.raised
    assert finding.stored == "a > 5"
    assert {camp.expression for camp in finding.camps} == {"A", "a > 5"}
    assert any(loss.lost_to == ("c1",) and loss.lost.startswith("A") for loss in finding.losses)


TAGS = st.sampled_from(["*", "A", "B", "A || B", "B || C", "A || B || C"])


@given(members=st.lists(TAGS, min_size=1, max_size=5), queue_count=st.integers(1, 8))
def test_the_reported_loss_equals_that_of_a_broker_model(
    members: list[str], queue_count: int
) -> None:
    """Each queue and tag, played through: the holder's pull is filtered by the group's subscription,
    then by the holder's client; a tag that a member wants and that is not delivered is lost."""
    watched = Watched(queue_count)
    for number, tags in enumerate(members):
        watched.join(f"c{number}", {"T": tags})
        watched.clock.advance_ms(1)
    wants = [None if tags == "*" else set(tags.split(" || ")) for tags in members]
    stored = wants[-1]
    alphabet = {"A", "B", "C", "other"}

    def passes(wish: set[str] | None) -> set[str]:
        return alphabet if wish is None else wish

    expected: set[tuple[int, str, str]] = set()
    share, more = divmod(queue_count, len(members))
    queue = 0
    for number, own in enumerate(wants):
        for _ in range(share + (1 if number < more else 0)):
            given_ = passes(stored) & passes(own)
            for other, wish in enumerate(wants):
                expected |= {(queue, tag, f"c{other}") for tag in passes(wish) - given_}
            queue += 1
    said: set[tuple[int, str, str]] = set()
    for finding in watched.guard.findings():
        for loss in finding.losses:
            if loss.lost == "everything":
                lost = alphabet
            elif loss.lost.startswith("everything but "):
                lost = alphabet - set(loss.lost.removeprefix("everything but ").split(" || "))
            else:
                lost = set(loss.lost.split(" || "))
            said |= {
                (queue_id, tag, client)
                for queue_id in loss.queue_ids
                for tag in lost
                for client in loss.lost_to
            }
    # Members that ask the same lose nothing: then there is no finding, and nothing is expected.
    assert said == expected
