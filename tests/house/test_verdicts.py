"""What became of a message: one table of words, and every face shows these and no others."""

import json
import re

import pytest

from pocketmq.model.track import Severity, TrackType, Verdict
from tests.house.test_house_rules import ROOT

CONSOLE = ROOT / "pocketmq" / "console"
# Where the words are given; all others take them from there.
HOMES = {"pocketmq/model/track.py", "pocketmq/broker/delivery/track.py"}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_language_has_a_word_for_each_and_for_no_other(language: str) -> None:
    words = json.loads((CONSOLE / "i18n" / f"{language}.json").read_text(encoding="utf-8"))
    for prefix, names in (
        ("verdictName", Verdict),
        ("verdictText", Verdict),
        ("trackType", TrackType),
    ):
        assert {key.partition(".")[2] for key in words if key.startswith(f"{prefix}.")} == set(
            names
        )
        assert all(words[f"{prefix}.{name}"].strip() for name in names)


def test_each_severity_has_a_colour() -> None:
    text = (CONSOLE / "static" / "table.js").read_text(encoding="utf-8")
    (table,) = re.findall(r"KINDS = \{(.*?)\}", text)
    assert set(re.findall(r"(\w+):", table)) == set(Severity)


def test_no_face_has_a_list_of_verdicts_of_its_own() -> None:
    # Other things are consumed, expired, not online or unknown, too.
    own = set(Verdict) - {"CONSUMED", "EXPIRED", "NOT_ONLINE", "UNKNOWN"}
    literal = re.compile(rf"[\"'`]({'|'.join(sorted(own))})[\"'`]")
    holders = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "pocketmq").rglob("*.*")
        if path.suffix in (".py", ".js") and literal.search(path.read_text(encoding="utf-8"))
    }
    assert holders <= HOMES
