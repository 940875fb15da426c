"""Agreement and track types: the rules that guard, administration and every face share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.agreement import (
    Camp,
    GroupFinding,
    Loss,
    camps,
    differences,
    differing,
    losses,
    same,
    signature,
)
from pocketmq.model.subscription import SQL92, SubscriptionData, build_subscription
from pocketmq.model.track import TrackType, track_type
from pocketmq.remoting import fastjson

Asked = dict[str, SubscriptionData]
TAGS = st.lists(st.sampled_from("ABCD"), max_size=4)


def asks(**topics: str) -> Asked:
    retry = SubscriptionData("%RETRY%g")
    return {topic: build_subscription(topic, text) for topic, text in topics.items()} | {
        retry.topic: retry
    }


@given(TAGS, TAGS, st.sampled_from(["||", " || ", "||  "]))
def test_what_lets_the_same_through_is_the_same_however_it_is_written(
    one: list[str], other: list[str], between: str
) -> None:
    first = asks(T=" || ".join(one) or "*")
    second = asks(T=between.join(other) or "*")
    agree = set(one) == set(other)
    assert same(first, second) is agree
    assert differing(first, second) == ([] if agree else ["T"])
    assert (signature(first) == signature(second)) is agree
    found = differences([("c1", first), ("c2", second)])
    assert list(found) == ([] if agree else ["T"])


def test_versions_and_the_retry_topic_do_not_matter_but_the_kind_does() -> None:
    newer = build_subscription("T", "A", sub_version=9)
    assert same(asks(T="A"), {"T": newer})
    sql = {"T": build_subscription("T", "A", SQL92)}
    assert not same(asks(T="A"), sql)
    assert not same(asks(T="*"), asks())


def test_a_pull_consumer_that_subscribes_nothing_is_in_no_camp() -> None:
    members = [("c1", asks(T="A")), ("c2", asks())]
    assert [each.client_ids for each in camps(members, "T")] == [("c1",), ("c2",)]
    assert differences(members, "CONSUME_ACTIVELY") == {}


def test_a_finding_survives_its_json() -> None:
    found = camps([("c1", asks(T="A")), ("c2", asks(T="B"))], "T")
    lost = losses(found, build_subscription("T", "B"), {0: "c1", 1: "c2"})
    assert Loss((0,), "c1", "B", ("c2",)) in lost
    finding = GroupFinding("g", "T", 1_000, True, "B", tuple(found), tuple(lost))
    assert GroupFinding.from_json(finding.to_json()).to_json() == finding.to_json()
    nobody = Loss((1,), None, "A", ("c",))
    unknown = GroupFinding("g", "T", None, True, None, (Camp(None, None, ("c",)),), (nobody,))
    assert "since" not in unknown.text
    # A broker's answer leaves out what is null.
    assert GroupFinding.from_json(fastjson.loads(fastjson.dumps(unknown.to_json()))) == unknown


@pytest.mark.parametrize(
    ("expression", "tag", "found"),
    [
        ("*", None, TrackType.CONSUMED),
        ("tagA", "tagA", TrackType.CONSUMED),
        ("tagA || tagB", "tagB", TrackType.CONSUMED),
        ("tagA", "tagB", TrackType.CONSUMED_BUT_FILTERED),
        ("tagA", None, TrackType.CONSUMED_BUT_FILTERED),
    ],
)
def test_a_message_behind_the_offset_is_consumed_unless_its_tag_is_not_subscribed(
    expression: str, tag: str | None, found: TrackType
) -> None:
    """S89, E3b."""
    stored = build_subscription("T", expression)
    assert track_type("CONSUME_PASSIVELY", "CLUSTERING", stored, tag, is_passed=True) is found
    ahead = track_type("CONSUME_PASSIVELY", "CLUSTERING", stored, tag, is_passed=False)
    assert ahead is TrackType.NOT_CONSUME_YET


def test_who_pulls_says_nothing_and_who_broadcasts_has_no_offset_here() -> None:
    for model in ("CLUSTERING", "BROADCASTING"):
        assert track_type("CONSUME_ACTIVELY", model, None, None, is_passed=True) == "PULL"
    passive = track_type("CONSUME_PASSIVELY", "BROADCASTING", None, None, is_passed=False)
    assert passive is TrackType.CONSUME_BROADCASTING
