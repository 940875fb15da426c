"""What a sentence of ours may cite."""

import re

from tests.house.test_house_rules import ROOT, text_files


def test_every_document_that_is_cited_is_there() -> None:
    """A reader of the repository has nothing else."""
    there = {path.name for path, _ in text_files()}
    cited = re.compile(r"[a-z0-9][a-z0-9_-]*\.md\b")
    absent = sorted(
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in text_files()
        if path.suffix in (".py", ".md", ".toml", ".js", ".css", ".sh")
        for name in set(cited.findall(text)) - there
        if "offenders" not in path.name
    )
    assert absent == []


def test_no_file_cites_an_issue_by_its_number() -> None:
    """Numbers of a list that the repository does not hold."""
    cites = re.compile(r"\b[Ii]ssues? \d+|\bpart \d+ of (?:the )?issue")
    offenders = sorted(
        {
            f"{path.relative_to(ROOT)}: {found.group()}"
            for path, text in text_files()
            if (found := cites.search(text)) and path.name != "test_citations.py"
        }
    )
    assert offenders == []
