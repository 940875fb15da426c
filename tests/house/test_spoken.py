"""Sentences of the server in other languages: none is missing, none is cut short."""

import re
from collections.abc import Iterator

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.console import overview_warnings
from pocketmq.console.languages import LANGUAGES, meanings, spoken
from pocketmq.model.agreement import Camp, GroupFinding, Loss
from pocketmq.model.diagnosis import GroupFacts, MemberFacts, Thresholds, TopicFacts, diagnose
from pocketmq.store import StoreConfig
from tests.house.spoken import sentences_of_errors, sentences_of_tracks

HOLE = re.compile(r"\{(\w+)\}")
LIMITS = Thresholds(offline_ms=0)


@pytest.fixture(params=sorted(LANGUAGES.keys() - {"en"}))
def rules(request: pytest.FixtureRequest) -> list[re.Pattern[str]]:
    """The English side of a language's table."""
    templates = spoken(request.param)
    parts = [list(map(re.escape, HOLE.sub("\0", each).split("\0"))) for each in templates]
    return [re.compile("(.+?)".join(each), re.DOTALL) for each in parts]


def untranslated(rules: list[re.Pattern[str]], said: Iterator[str] | dict[str, str]) -> list[str]:
    """Return what no template fits, apart from values alone."""
    words = (text for text in said if re.search("[a-z]{3}", text))
    return [text for text in words if not any(rule.fullmatch(text) for rule in rules)]


def findings() -> Iterator[str]:
    """What the diagnosis says, and advises, of groups with each of its symptoms."""
    camps = (Camp(("TAG", ("a",)), "a", ("c1",)), Camp(None, None, ("c2", "c3")))
    losses = [(), (Loss((0,), "c1", "a", ("c2",)),), (Loss((0, 1), None, "a", ("c2",)),)]
    differ = [GroupFinding("g", "T", None, True, "a", camps, each) for each in losses]
    one, two = MemberFacts("c1", {"T": 4}), MemberFacts("c2", {})
    stuck = "1 message of T, queue 2, from offset 40 on"
    hangs = MemberFacts("c1", {"T": 4}, 200_000, stuck, 200_000)
    slow = MemberFacts("c1", {"T": 4}, 200_000, stuck, 1_000)
    topics = [
        TopicFacts("T", 20_000, 10.0, 0.0, 1, ["b"], ["c"]),
        TopicFacts("U", 20_000, 0.0, 900.0, 4),
        TopicFacts("V", 20_000, 0.0, 0.1, 4),
        TopicFacts("W", 20_000, None, None, 4),
    ]
    failing = {"retries_per_minute": 900.0, "dead_letters": 1, "lost": {"T": 2}}
    for facts in (
        GroupFacts("g", [one, two], findings=differ, topics=topics, unread=2, disabled_on=["b"]),
        GroupFacts("g", [hangs, two, one], topics=topics, retries_in_hour=900, dead_letters=3),
        GroupFacts("g", [slow, two], topics=[TopicFacts("T", 1, queues=4)], unread=1, **failing),  # type: ignore[arg-type]
        *(
            GroupFacts("g", [], offline_ms=offline, waiting_ms=waits, topics=topics[:1])
            for offline in (None, 1_000)
            for waits in (None, 5_000)
        ),
    ):
        for each in diagnose(facts, LIMITS):
            yield each.text
            yield each.advice


def test_errors_questions_and_tracks_are_said_in_every_language(
    rules: list[re.Pattern[str]],
) -> None:
    """Read from the sources, so that a new sentence is not forgotten."""
    errors, tracks = sentences_of_errors(), sentences_of_tracks()
    assert len(errors) > 100
    assert len(tracks) > 15
    assert untranslated(rules, errors | tracks) == []


def test_findings_and_units_are_said_in_every_language(rules: list[re.Pattern[str]]) -> None:
    said = list(findings())
    assert len(set(said)) > 30
    assert untranslated(rules, iter(said)) == []
    assert untranslated(rules, iter(overview_warnings.ADVICE.values())) == []
    known = {**StoreConfig.keys(), **BrokerConfig.keys()}
    assert untranslated(rules, iter({each.unit for each in known.values()})) == []


@pytest.mark.parametrize("language", sorted(LANGUAGES.keys() - {"en"}))
def test_a_sentence_of_another_language_leaves_nothing_out(language: str) -> None:
    for english, own in spoken(language).items():
        assert sorted(HOLE.findall(own)) == sorted(HOLE.findall(english)), english
        # A value alone would fit every text.
        assert HOLE.sub("", english).strip(" ;:,."), english


def test_every_setting_has_a_meaning_in_every_language() -> None:
    """Those that the settings page shows."""
    known = {**StoreConfig.keys(), **BrokerConfig.keys()}
    assert meanings("en") == meanings("../en") == {}
    for language in LANGUAGES.keys() - {"en"}:
        table = meanings(language)
        assert known.keys() == table.keys()
        for name in known.keys() & table.keys():
            assert table[name].strip() != known[name].help, name
            # Names of values are the same in each language.
            for word in re.findall(r"\b(?:[A-Z]{3,}_[A-Z_]+|%[A-Z]+%\w+)", table[name]):
                assert word in known[name].help, (name, word)
