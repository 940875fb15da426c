"""What a message tells a user to type is a command."""

import re
from pathlib import Path

from tests.cli.test_command_tree import ROOT, TREE
from tests.house.ratchets import modules

_NAMED = re.compile(r"\bpocketmq ([a-z]+) ([a-z]+)\b")


def named() -> set[tuple[str, str, Path]]:
    """The words after `pocketmq` wherever the product's sources name a group of commands."""
    groups = set(getattr(ROOT, "commands", {})) & {path.split()[0] for path in TREE if " " in path}
    return {
        (group, word, path)
        for path, text, _ in modules().values()
        for group, word in _NAMED.findall(text)
        if group in groups
    }


def test_every_command_that_a_message_names_is_there() -> None:
    found = named()
    assert len(found) > 15
    assert [each for each in found if " ".join(each[:2]) not in TREE] == []
