"""The commands of docs/backup.md, as they stand there."""

import re
import shlex
from pathlib import Path

import pytest

from pocketmq.cli.app import run
from tests.backup.stores import fill
from tests.store.stores import open_store

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store(tmp_path / "data")
    fill(store, 100)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    words = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    commands = [each for each in words if each[0] == "store"]
    assert [each[1] for each in commands] == ["backup", "backup", "backups", "restore", "diff"]
    for each in commands:
        assert run(each) == 0, each
    store.close()
