"""A server in a process of its own that does not start: it is told, and nothing of it is left."""

import os
import stat
from pathlib import Path

import pytest

from pocketmq.testing import ServerProcess
from pocketmq.testing.external import External


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that those of servers are made in."""
    made = tmp_path / "memory"
    made.mkdir()
    monkeypatch.setattr("pocketmq.testing.folders._MEMORY_FOLDER", str(made))
    return made


def test_a_bad_setting_is_told_and_leaves_no_folder(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="brokerRole"):
        ServerProcess({"brokerRole": "nonsense"}).start()
    assert not list(folder.iterdir())


def test_one_that_says_nothing_is_not_waited_for_without_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test run in CI stood still until CI ended it."""
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(silent.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("sys.executable", str(silent))
    monkeypatch.setattr("pocketmq.testing.process._READY_WITHIN_S", 0.2)
    with pytest.raises(RuntimeError, match="ended with -9"):
        ServerProcess().start()
    assert not list(folder.iterdir())


def test_a_client_that_cannot_connect_leaves_no_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A with block that was not entered is not left."""
    found: list[int] = []

    def fails(server: ServerProcess) -> None:
        found.append(server.pid)
        raise OSError("no thread")

    monkeypatch.setattr(External, "start", fails)
    server = ServerProcess()
    with pytest.raises(OSError, match="no thread"), server:
        pytest.fail("it was entered")
    with pytest.raises(ProcessLookupError):
        os.kill(found[0], 0)
    assert not list(folder.iterdir())
