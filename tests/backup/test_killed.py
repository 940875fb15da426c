"""kill -9 in the middle of a backup or a restore leaves nothing half."""

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.backup.cut import chosen_cut, names_of_cuts
from pocketmq.backup.place import opened_place
from tests.backup.stores import damaged, fill, restored, take, unlike
from tests.store.stores import open_store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--backup-kills"))


class Child:
    """Runs that are killed at a step."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, step: int) -> int:
        """Return how many steps the run made, -9 if it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def child(*words: str) -> Iterator[Child]:
    command = [sys.executable, "-m", "tests.backup.killed_child", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True) as process:
        yield Child(process)


def two_stores(tmp_path: Path) -> tuple[Path, Path]:
    """A store as it was, and as it went on: what a backup has, and what it is to get."""
    store = open_store(tmp_path / "before")
    fill(store, 400)
    store.close()
    shutil.copytree(tmp_path / "before", tmp_path / "store")
    store = open_store(tmp_path / "store")
    fill(store, 300, 400)
    store.close()
    return tmp_path / "before", tmp_path / "store"


def test_a_backup_that_is_killed_is_there_whole_or_not(tmp_path: Path, kills: int) -> None:
    before, store = two_stores(tmp_path)
    first = tmp_path / "first"
    take(before, str(first))
    dest = tmp_path / "backup"
    chance = random.Random(kills)
    with child("backup", str(store), str(dest)) as killed:
        shutil.copytree(first, dest)
        steps = killed.run(0)
        assert steps > 20
        # The last steps remove what only the first cut named.
        for step in [steps, *(chance.randint(1, steps) for _ in range(kills - 1))]:
            shutil.rmtree(dest)
            shutil.copytree(first, dest)
            assert killed.run(step) == -9
            place = opened_place(str(dest))
            assert damaged(place) == []
            found = restored(str(dest), tmp_path / "made")
            assert unlike(tmp_path / "made", before if found.cut.ms == 1 else store) == []
            shutil.rmtree(tmp_path / "made")
            # The next run brings it to its end, and removes what this one left.
            assert killed.run(0) > 0
            assert not list(dest.rglob("*.part"))
            assert len(names_of_cuts(place)) == 1
            objects = {name.rpartition("/")[2] for name in place.listed("objects")}
            assert objects == chosen_cut(place).objects


def test_a_restore_that_is_killed_leaves_no_store(tmp_path: Path, kills: int) -> None:
    _, store = two_stores(tmp_path)
    dest, made = tmp_path / "backup", tmp_path / "made"
    take(store, str(dest))
    chance = random.Random(kills)
    with child("restore", str(dest), str(made)) as killed:
        steps = killed.run(0)
        assert steps > 20
        for _ in range(kills):
            shutil.rmtree(made, ignore_errors=True)
            assert killed.run(chance.randint(1, steps)) == -9
            if made.exists():
                assert unlike(made, store) == []
                continue
            assert killed.run(0) > 0
            assert unlike(made, store) == []
            assert not (tmp_path / "made.restoring").exists()
