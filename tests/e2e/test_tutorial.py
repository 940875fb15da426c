"""The tutorial, played from its first line to its last: a fresh clone, `make run`, default ports."""

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house.doc_blocks import ROOT, Block, blocks
from tests.kit.waiting import until

PAGE = ROOT / "docs" / "tutorial.md"
PORTS = (9876, 10911, 8081, 8082)
_SAVE_AS = re.compile(r"Save this as `(\w+\.py)`")


@pytest.fixture
def clone(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """What a clone of the repository holds."""
    if not request.config.getoption("--tutorial"):
        pytest.skip("installs PocketMQ in a fresh clone and takes the default ports: --tutorial")
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.fail(f"another program listens on port {port}, which the tutorial needs")
    path = tmp_path / "pocketmq"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(path)], check=True)
    return path


class Terminal:
    """A terminal in the clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            shlex.split(line), cwd=self.folder, capture_output=True, text=True, check=False
        )

    @contextmanager
    def leave_running(self, line: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Ctrl-C ends it."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                shlex.split(line),
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield process
                os.killpg(process.pid, signal.SIGINT)
                process.wait(60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def test_the_tutorial_works_as_it_stands(clone: Path, tmp_path: Path) -> None:
    terminal = Terminal(clone)
    first, *commands = blocks(PAGE, "sh")
    log = tmp_path / "run.log"
    with terminal.leave_running(first.text, log) as server:

        def ready() -> bool:
            if server.poll() is not None:
                raise RuntimeError(log.read_text()[-3000:])
            return "\nready " in "\n" + log.read_text()

        until(ready, "make run prints its ready line", 600)
        [line] = [each for each in log.read_text().splitlines() if each.startswith("ready ")]
        assert f"namesrv=127.0.0.1:{PORTS[0]} broker=127.0.0.1:{PORTS[1]} " in line

        send_and_read, look, doctor = commands
        assert "hello" in _played(terminal, send_and_read)[-1]
        _save_programs(clone)
        hello = terminal.run(".venv/bin/python hello.py")
        assert hello.returncode == 0, hello.stderr
        assert [f"read order {number}" in hello.stdout for number in range(3)] == [True] * 3
        topics, group, cluster = _played(terminal, look)
        assert "Orders" in topics
        assert "Orders" in group
        assert "127.0.0.1:10911" in cluster

        with (
            terminal.leave_running(".venv/bin/python -u mixed.py tagA", tmp_path / "a.log"),
            terminal.leave_running(".venv/bin/python -u mixed.py tagB", tmp_path / "b.log"),
        ):

            def lost() -> bool:
                sent = ".venv/bin/pocketmq message send TopicTest two --tag tagB"
                assert terminal.run(sent).returncode == 0
                said = terminal.run(doctor.text.strip())
                return said.returncode == 1 and "tagA" in said.stdout and "tagB" in said.stdout

            until(lost, "the doctor names both subscriptions", 120)
    # make itself dies of Ctrl-C, after its child.
    assert "broker stopped" in log.read_text()
    assert terminal.run(".venv/bin/pocketmq store verify data").returncode == 0


def _played(terminal: Terminal, block: Block) -> list[str]:
    """What each command printed."""
    printed = []
    for line in block.text.splitlines():
        done = terminal.run(line)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed.append(done.stdout)
    return printed


def _save_programs(folder: Path) -> None:
    names = _SAVE_AS.findall(PAGE.read_text(encoding="utf-8"))
    programs = blocks(PAGE, "python")
    assert len(names) == len(programs)
    for name, program in zip(names, programs, strict=True):
        (folder / name).write_text(program.text, encoding="utf-8")
