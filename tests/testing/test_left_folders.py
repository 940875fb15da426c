"""A test run that a signal ends leaves nothing in memory for longer than until the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.waiting import until

from pocketmq.testing import folders

_RUN = """
import sys, time
from pocketmq.testing import InProcess
with InProcess() as server:
    server.send_all("T", ["x"] * 3)
    print(server.store, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_run_removes_what_a_killed_one_left(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = _RUN.replace("InProcess()", 'InProcess(store="temporary")')
    with subprocess.Popen(
        [sys.executable, "-c", run], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        store = Path(process.stdout.readline().strip())
        folders.remove_left(str(tmp_path))
        assert (store / "commitlog").is_dir(), "its process lives"
        process.send_signal(number)
    assert store.is_dir()
    folders.remove_left(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_lives_as_long_as_a_child_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = folders.new_folder(folders.TEMPORARY)
    lock = folders.lock_of(folder)
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(lock,)) as child:
        # As after the end of this process.
        os.close(folders._held.pop(folder))
        folders.remove_left(str(tmp_path))
        assert Path(folder).is_dir()
        assert child.stdin is not None
        child.stdin.close()
        until(lambda: child.poll() is not None, "the child ends")
    folders.remove_left(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
