"""A file system's folder lost+found, at any level of a store: it is no topic and no queue."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.app import run
from tests.store.stores import read_all, running_store, send

COMMANDS = ("ls", "verify", "du", "dump", "export", "archive", "diff", "repair")


def put_everywhere(root: Path) -> int:
    """A lost+found in each folder, with what a check of a file system leaves there. Returns: how many."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in folders:
        found = folder / "lost+found"
        (found / "#123").mkdir(parents=True)
        (found / "0").mkdir()
        (found / "0" / f"{0:020d}").write_bytes(b"stray")
        (found / f"{0:020d}").write_bytes(b"stray")
    return len(folders)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Any]:
    def ask(command: str, root: Path) -> tuple[int, str]:
        words = {
            "archive": [str(root), str(tmp_path / f"{root.name}-archive")],
            "diff": [str(root), str(root)],
            "repair": [str(root), "--yes"],
            "export": [str(root), "--out", str(tmp_path / f"{root.name}.export")],
        }
        code = run(["store", command, *words.get(command, [str(root)])])
        said = capsys.readouterr()
        return code, (said.out + said.err).replace(str(root), "ROOT")

    return ask


async def written(root: Path) -> None:
    async with running_store(root) as store:
        for number in range(30):
            send(store, "T", number % 3, b"%d" % number)


async def continued(root: Path) -> None:
    async with running_store(root) as store:
        send(store, "T", 0, b"more")
        bodies = [bytes(each.body) for each in read_all(store, "T", 0)]
        assert bodies == [*(b"%d" % n for n in range(0, 30, 3)), b"more"]
        assert sorted(store.queues()) == [("T", 0), ("T", 1), ("T", 2)]


def test_a_store_with_lost_and_found_is_the_same_store(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    plain = tmp_path / "plain"
    asyncio.run(written(plain))
    (plain / "config").mkdir(exist_ok=True)
    (plain / "config" / "topics.json").write_text(json.dumps({}))
    shutil.copytree(plain, tmp_path / "other")
    assert put_everywhere(tmp_path / "other") == 8
    for command in COMMANDS:
        of_plain, of_found = asked(command, plain), asked(command, tmp_path / "other")
        assert of_found[0] == of_plain[0] == 0, (command, of_plain, of_found)
        if command in ("dump", "diff"):
            assert of_found == of_plain
    asyncio.run(continued(tmp_path / "other"))
