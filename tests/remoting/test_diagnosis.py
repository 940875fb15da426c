"""What counts as wrong with a group: each symptom from the facts that show it, and none without."""

import pytest

from pocketmq.model.agreement import Camp, GroupFinding, Loss
from pocketmq.model.balance import State
from pocketmq.model.diagnosis import (
    GroupFacts,
    MemberFacts,
    Thresholds,
    TopicFacts,
    diagnose,
    is_sick,
)
from pocketmq.model.message import MessageQueue
from pocketmq.model.track import Severity

LIMITS = Thresholds()
ONE = [MemberFacts("c1", {"T": 4})]


def kinds(facts: GroupFacts) -> list[tuple[str, str]]:
    return [(each.kind, each.severity.value) for each in diagnose(facts, LIMITS)]


def lagging(lag: int, came: float | None, went: float | None) -> GroupFacts:
    return GroupFacts("g", ONE, topics=[TopicFacts("T", lag, came, went, 4)])


def test_a_group_that_does_its_work_has_no_symptom() -> None:
    assert diagnose(lagging(999, 100, 100), LIMITS) == []


@pytest.mark.parametrize(
    ("lag", "came", "went", "severity", "words"),
    [
        (
            12_500,
            15.0,
            0.5,
            "error",
            "12,500 messages behind, 15.0 in/s, 0.5 out/s: never empty at this rate",
        ),
        (1_000, 15.0, 0.5, "error", "never empty"),
        (1_000, 15.0, 5.0, "warning", "never empty"),
        (2_680, 0.0, 3.8, "warning", "empty in 12 min"),
        (12_000, 0.0, 0.0, "error", "never empty"),
        (12_000, 10.0, 50.0, "warning", "empty in 5 min"),
        (12_000, None, None, "warning", "12,000 messages behind"),
    ],
)
def test_lag_is_judged_by_where_it_goes(
    lag: int, came: float | None, went: float | None, severity: str, words: str
) -> None:
    [symptom] = diagnose(lagging(lag, came, went), LIMITS)
    assert (symptom.kind, symptom.severity.value, symptom.topic) == ("LAG", severity, "T")
    assert words in symptom.text
    assert len(symptom.text) < 110


def test_a_small_lag_and_one_that_gets_less_are_nothing() -> None:
    assert kinds(lagging(999, 15.0, 0.5)) == []
    assert kinds(lagging(999, 0.0, 0.5)) == []
    assert kinds(lagging(9_999, 0.0, 20.0)) == []


def test_a_group_that_has_just_begun_is_no_error_yet() -> None:
    """3,000 wait and its members have finished none so far: a warning for ten seconds, then an error."""
    for idle_ms, severity in (9_000, "warning"), (11_000, "error"):
        members = [MemberFacts("c1", {"T": 4}, idle_ms=idle_ms)]
        topics = [TopicFacts("T", 3_000, 0.0, 0.0, 4)]
        assert kinds(GroupFacts("g", members, topics=topics)) == [("LAG", severity)]


def test_where_a_member_hangs_no_more_members_are_asked_for() -> None:
    hanging = [MemberFacts("c1", {"T": 4}, 180_000, "3 messages", 180_000)]
    found = diagnose(GroupFacts("g", hanging, topics=[TopicFacts("T", 3_000, 9.0, 0.0, 4)]), LIMITS)
    advice = {each.kind: each.advice for each in found}
    assert advice["LAG"] == "a member hangs: see MEMBER_STUCK first"


def test_dead_letters_are_as_grave_here_as_in_the_balance() -> None:
    facts = GroupFacts("g", ONE, retries_per_minute=11, dead_letters=2_600)
    found = diagnose(facts, LIMITS)
    assert [(each.kind, each.severity) for each in found] == [
        ("DEAD_LETTERS", State.DEAD.severity),
        ("FAILING", Severity.WARNING),
    ]
    [lost] = diagnose(GroupFacts("g", ONE, lost={"T": 3}), LIMITS)
    assert lost.severity is State.LOST.severity
    assert "2,600 dead letters" in found[0].text
    assert "pocketmq dlq resend g" in found[0].advice
    assert kinds(GroupFacts("g", ONE, retries_per_minute=10, retries_in_hour=100)) == []


def test_a_group_that_fails_is_sick_between_two_retries_too() -> None:
    """Retries lie minutes, then hours apart: the last minute alone gave the all-clear most of the time."""
    [failing] = diagnose(GroupFacts("g", ONE, retries_per_minute=0, retries_in_hour=1_400), LIMITS)
    assert (failing.kind, failing.severity) == ("FAILING", Severity.WARNING)
    assert failing.text == "1,400 failures in the last hour"


def test_members_are_counted_and_looked_at() -> None:
    topic = [TopicFacts("T", 10, 0, 0, 2)]
    assert kinds(GroupFacts("g", [], topics=topic)) == [("NOBODY_ONLINE", "warning")]
    assert kinds(GroupFacts("g", [])) == []
    assert kinds(GroupFacts("g", None, topics=topic)) == []
    [alone] = diagnose(GroupFacts("g", [], topics=topic, retry_lag=6), LIMITS)
    assert alone.text == "no member has been online, 16 messages waiting"
    [late] = diagnose(GroupFacts("g", ONE, retry_lag=LIMITS.lag_max), LIMITS)
    assert (late.kind, late.topic) == ("LAG", "%RETRY%g")
    three = [MemberFacts("c1", {"T": 1}), MemberFacts("c2", {"T": 1}), MemberFacts("c3", {})]
    assert kinds(GroupFacts("g", three, topics=topic)) == [("IDLE_MEMBERS", "info")]
    assert not is_sick(diagnose(GroupFacts("g", three, topics=topic), LIMITS))
    greedy = [MemberFacts("c1", {"T": 2}), MemberFacts("c2", {})]
    assert kinds(GroupFacts("g", greedy, topics=topic)) == [("ONE_MEMBER_HAS_ALL", "warning")]
    assert kinds(GroupFacts("g", greedy, divides=False, topics=topic)) == []
    silent = [MemberFacts("c1", {"T": 2}), MemberFacts("c2")]
    assert kinds(GroupFacts("g", silent, topics=topic)) == []
    assert kinds(GroupFacts("g", ONE, unread=3)) == [("QUEUES_UNREAD", "warning")]


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("lag", "offline_ms", "waiting_ms", "expected"),
    [
        (1, 5_000, 5_000, "info"),
        (1, 11 * MINUTE, 11 * MINUTE, "warning"),
        (1, 25 * HOUR, 25 * HOUR, "info"),
        (LIMITS.lag_max, 3 * DAY, 3 * DAY, "warning"),
        (LIMITS.lag_max, 5_000, 5_000, "warning"),
        (0, 5_000, 0, "info"),
        (0, 25 * HOUR, 0, None),
        (0, None, 0, None),
        (1, None, 11 * MINUTE, "warning"),
        (1, None, 25 * HOUR, "info"),
        (1, None, None, "warning"),
    ],
)
def test_a_group_without_members_is_missed_for_a_day(
    lag: int, offline_ms: int | None, waiting_ms: int | None, expected: str | None
) -> None:
    """A last message that waits for ever alarmed for ever; a member that restarts alarmed at once."""
    topics = [TopicFacts("T", lag, 0, 0, 2)]
    facts = GroupFacts("g", [], topics=topics, offline_ms=offline_ms, waiting_ms=waiting_ms)
    assert kinds(facts) == ([("NOBODY_ONLINE", expected)] if expected else [])
    facts.in_batches = True
    assert kinds(facts) == []


def test_an_absence_is_told_with_its_age() -> None:
    topics = [TopicFacts("T", 3, 0, 0, 2)]
    facts = GroupFacts("g", [], topics=topics, offline_ms=2 * HOUR, waiting_ms=45 * MINUTE)
    [alone] = diagnose(facts, LIMITS)
    assert (
        alone.text
        == "no member has been online for 2 h, 3 messages waiting, the next one for 45 min"
    )


def test_one_of_a_thing_is_not_said_to_be_many() -> None:
    alone = GroupFacts("g", [], topics=[TopicFacts("T", 1, 0, 0, 2)], dead_letters=1)
    assert [each.text for each in diagnose(alone, LIMITS)] == [
        "1 dead letter: given up after too many failures",
        "no member has been online, 1 message waiting",
    ]
    [unread] = diagnose(GroupFacts("g", ONE, unread=1), LIMITS)
    assert unread.text == "1 queue with messages but no member"


def test_a_member_that_finishes_nothing_it_holds_is_stuck() -> None:
    table = {
        MessageQueue("T", "b", 2): {
            "cachedMsgCount": 7,
            "cachedMsgMinOffset": 5,
            "lastConsumeTimestamp": 100_000,
        },
        MessageQueue("T", "b", 3): {"cachedMsgCount": 0, "lastConsumeTimestamp": 90_000},
        MessageQueue("U", "b", 0): {"transactionMsgCount": 33, "lastConsumeTimestamp": 100_000},
    }
    stuck = MemberFacts.of("c1", table, 400_000)
    [symptom] = diagnose(GroupFacts("g", [stuck]), LIMITS)
    assert (symptom.kind, symptom.severity) == ("MEMBER_STUCK", Severity.ERROR)
    assert symptom.text == (
        "c1 has finished no message for 5 min; it holds 40 messages of 2 queues, for longest those of T, "
        "queue 2, from offset 5 on"
    )
    assert kinds(GroupFacts("g", [MemberFacts.of("c1", table, 219_999)])) == []


def test_a_member_whose_other_queues_move_on_is_not_called_dead() -> None:
    """A slow listener with one thread turns to a queue every few minutes only."""
    held = {"cachedMsgCount": 1, "cachedMsgMinOffset": 5}
    table = {
        MessageQueue("T", "b", 2): {**held, "lastConsumeTimestamp": 100_000},
        MessageQueue("T", "b", 3): {"cachedMsgCount": 0, "lastConsumeTimestamp": 399_000},
    }
    [symptom] = diagnose(GroupFacts("g", [MemberFacts.of("c1", table, 400_000)]), LIMITS)
    assert (symptom.kind, symptom.severity) == ("MEMBER_STUCK", Severity.WARNING)
    assert symptom.text == (
        "c1 has finished nothing of one queue for 5 min; it holds 1 message of T, queue 2, from offset 5 on"
    )
    assert "restart" not in symptom.advice


def test_what_forbids_to_consume_is_told() -> None:
    closed = TopicFacts("T", closed_on=["b"])
    full = TopicFacts("U", read_only_on=["b"])
    facts = GroupFacts("g", ONE, topics=[closed, full], disabled_on=["b"])
    # Members that may not read are not called slow.
    behind = TopicFacts("T", lag=20_000, in_rate=1.0, out_rate=0.0, closed_on=["b"])
    for off, cause in ([], "TOPIC_NOT_READABLE"), (["b"], "GROUP_DISABLED"):
        found = diagnose(GroupFacts("g", ONE, topics=[behind], disabled_on=off), LIMITS)
        [lag] = [each for each in found if each.kind == "LAG"]
        assert lag.advice == f"no member may read these messages now: see {cause}"
    assert kinds(facts) == [
        ("GROUP_DISABLED", "warning"),
        ("TOPIC_NOT_READABLE", "warning"),
        ("TOPIC_READ_ONLY", "info"),
    ]


def test_a_difference_is_one_short_line() -> None:
    camps = (Camp(("TAG", ("A",)), "A", ("c1", "c2")), Camp(None, None, ("c3",)))
    finding = GroupFinding("g", "T", 5, True, "A", camps, (Loss((0, 1), None, "A", ("c1", "c2")),))
    [symptom] = diagnose(GroupFacts("g", ONE, findings=[finding]), LIMITS)
    assert (symptom.kind, symptom.severity) == ("GROUP_DIFFERS", Severity.ERROR)
    assert symptom.text == (
        "members ask for different things: 2 x [A]; 1 x nothing; 2 queues lose messages"
    )


def test_thresholds_are_a_brokers_settings() -> None:
    assert Thresholds.of({"doctorLagMax": "7", "doctorStuckTime": "soon"}) == Thresholds(lag_max=7)
