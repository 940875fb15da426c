"""What a release does to messages, told beforehand: the rules, case by case. Real clients: tests/interop."""

from collections import Counter

import pytest

from pocketmq.admin.release import Effect, ReleasePlan, Running, TopicNow, plan
from pocketmq.client.declared_subscriptions import DeclaredSubscriptions
from pocketmq.client.network.heartbeat import ConsumeFromWhere
from pocketmq.model.subscription import build_subscription
from pocketmq.remoting.errors import IllegalArgument

SQL = {"SQL92": "a > 1"}


def entry(asked: dict[str, object], **more: object) -> DeclaredSubscriptions:
    first = ConsumeFromWhere.FIRST_OFFSET.value
    return DeclaredSubscriptions.from_json(
        {"group": "g", "from": first, "subscriptions": asked, **more}
    )


def now(asked: dict[str, str], mode: str = "compatible", sample: str = "") -> Running:
    camp = {topic: build_subscription(topic, text) for topic, text in asked.items()}
    found = Running("g", [camp], mode=mode, has_offsets=True)
    for topic in {"T", "U", *asked}:
        found.topics[topic] = TopicNow(sample=Counter(sample))
    return found


def effects(found: ReleasePlan) -> set[tuple[str, str, str]]:
    return {(each.effect.value, each.topic, each.messages) for each in found.consequences}


@pytest.mark.parametrize(
    ("mode", "before", "after", "expected"),
    [
        ("compatible", {"T": "A || B"}, {"T": "B||A"}, set()),
        ("compatible", {"T": "A"}, {"T": "A || B"}, {("lost", "T", "B")}),
        ("compatible", {"T": "A || B"}, {"T": "A"}, {("dropped", "T", "B")}),
        ("compatible", {"T": "A"}, {"T": "B"}, {("lost", "T", "B"), ("dropped", "T", "A")}),
        ("compatible", {"T": "A"}, {"T": "*"}, {("lost", "T", "everything but A")}),
        ("compatible", {"T": "*"}, {"T": "A"}, {("dropped", "T", "everything but A")}),
        (
            "compatible",
            {"T": "*"},
            {"U": "*"},
            {("delayed", "T", "all"), ("delayed", "U", "all"), ("dropped", "T", "everything")},
        ),
        ("compatible", {"T": "*"}, {"T": "*", "U": "*"}, {("delayed", "U", "all")}),
        (
            "strict",
            {"T": "A"},
            {"T": "A || B"},
            {("lost", "T", "B"), ("delayed", "T", "all, for up to 30 s")},
        ),
        ("isolate", {"T": "A"}, {"T": "A || B"}, set()),
        ("isolate", {"T": "A || B"}, {"T": "B || C"}, {("dropped", "T", "A")}),
    ],
)
def test_what_a_rolling_release_does(
    mode: str, before: dict[str, str], after: dict[str, object], expected: set[tuple[str, str, str]]
) -> None:
    assert effects(plan(now(before, mode), [entry(after)])) == expected


def test_sql_is_lost_as_far_as_others_do_not_let_it_through_and_given_to_who_did_not_ask() -> None:
    found = plan(now({"T": "A"}), [entry({"T": SQL})])
    assert {each.effect for each in found.consequences} == {
        Effect.LOST,
        Effect.UNWANTED,
        Effect.DROPPED,
    }
    assert found.steps[-1] == "stop every old member, then start the new ones"


def test_new_tags_are_safe_when_they_are_sent_afterwards_only() -> None:
    found = plan(now({"T": "A"}, sample="AAA"), [entry({"T": "A || B"})])
    assert found.steps == ["replace the members in any order", "only then send B to T"]
    sent = plan(now({"T": "A"}, sample="AAB"), [entry({"T": "A || B"})])
    assert sent.steps == ["stop every old member, then start the new ones"]
    assert "1 of the newest" in sent.consequences[0].why


def test_a_topic_that_is_new_to_a_group_at_its_end_loses_what_is_sent_meanwhile() -> None:
    last = ConsumeFromWhere.LAST_OFFSET.value
    found = plan(now({"T": "*"}), [entry({"T": "*", "U": "*"}, **{"from": last})])
    assert [each.effect for each in found.consequences] == [Effect.DELAYED, Effect.LOST]
    assert found.steps[-1] == "only then send to U"


def test_members_that_differ_for_good_lose_for_good() -> None:
    found = plan(Running("g"), [entry({"T": "A"}), entry({"T": "B"}), entry({"U": "*"})])
    assert effects(found) >= {("lost", "T", "A"), ("lost", "T", "B")}
    assert all("differ" in each.why for each in found.consequences if each.effect is Effect.LOST)


def test_a_group_that_replaces_another_begins_where_that_one_is() -> None:
    old = Running("old", topics={"T": TopicNow(lag=3, stored=10)})
    again = plan(Running("g"), [entry({"T": "*"}, replaces="old")], old)
    assert ("twice", "T", "7 that old has read") in effects(again)
    last = ConsumeFromWhere.LAST_OFFSET.value
    behind = plan(Running("g"), [entry({"T": "*"}, **{"from": last})], old)
    assert ("lost", "T", "3 that old has not read") in effects(behind)
    assert "offset copy old g" in behind.steps[0]


def test_a_change_of_model_reads_twice() -> None:
    found = plan(now({"T": "*"}), [entry({"T": "*"}, model="BROADCASTING")])
    assert [each.effect for each in found.consequences] == [Effect.TWICE]


def test_a_topic_that_nobody_knows_is_waited_for() -> None:
    before = now({})
    before.topics["V"] = TopicNow(exists=False)
    found = plan(before, [entry({"V": "*"})])
    assert "pocketmq topic create V" in found.steps


@pytest.mark.parametrize(
    "data",
    [
        "text",
        {"group": 1},
        {"group": "g"},
        {"group": "g", "subscriptions": {}},
        {"group": "g", "subscriptions": {"T": 1}},
        {"group": "g", "subscriptions": {"T": "||"}},
        {"group": "g", "subscriptions": {"T": "*"}, "topics": []},
        {"group": "g", "subscriptions": {"T": "*"}, "model": "SOME"},
    ],
)
def test_an_entry_that_is_wrong_is_named(data: object) -> None:
    with pytest.raises(IllegalArgument):
        DeclaredSubscriptions.from_json(data)


def test_an_entry_is_what_it_was_written_from() -> None:
    written = entry({"T": "A || B", "U": SQL}, replaces="old")
    assert DeclaredSubscriptions.from_json(written.to_json()).to_json() == written.to_json()
