"""What CONTRIBUTING.md promises of a task is true of its example."""

import re

from tests.house.test_house_rules import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_files_that_it_names_are_there() -> None:
    named = re.findall(r"`([\w./-]+/[\w.-]+)`", TEXT)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_request_code_stands_in_the_files_of_its_recipe_only() -> None:
    """The command comes last and asks the admin client, not by the code."""
    recipe = TEXT[TEXT.index("## Add a request code") :].partition("\n## ")[0]
    files = re.findall(r"^\| `([^`]+)` \|", recipe, re.MULTILINE)
    assert len(files) == 4
    holders = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "pocketmq").rglob("*.py")
        if re.search(r"\bGET_TIMERS\b|\bGetTimersHeader\b", path.read_text(encoding="utf-8"))
    }
    assert holders == set(files[:3])
