"""Folders of test runs that were killed are taken away by the next run, and those of living runs are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.testing import folders
from pocketmq.testing.folders import MEMORY, TEMPORARY, RunFolder, remove_abandoned

HOLDS = """
import sys
from pocketmq.testing.folders import RunFolder
print(RunFolder(sys.argv[1]).path, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("where", [MEMORY, TEMPORARY])
def test_the_next_run_removes_what_a_killed_one_left(where: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    path = Path(holder.stdout.readline().strip())
    try:
        (path / "commitlog").mkdir()
        (path / "commitlog" / "0").write_bytes(b"x" * 100)
        first = RunFolder(where)
        assert (path / "commitlog" / "0").exists()
    finally:
        holder.kill()
        holder.communicate()
    second = RunFolder(where)
    assert not path.parent.exists()
    assert Path(first.path).is_dir()
    for each in (first, second):
        each.remove()
        assert not Path(each.path).parent.exists()
        each.remove()


def test_a_link_and_a_file_of_that_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "pocketmq-run-test-link").symlink_to(tmp_path / "kept")
    (tmp_path / "pocketmq-run-test-file").write_text("x")
    folders.remove_abandoned(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_lives_as_long_as_a_child_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = RunFolder(TEMPORARY)
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(folder.lock,)) as child:
        # As after the end of this process.
        os.close(folder.lock)
        remove_abandoned(str(tmp_path))
        assert Path(folder.path).is_dir()
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    remove_abandoned(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
