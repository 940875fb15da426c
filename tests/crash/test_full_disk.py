"""R9 on real file systems that are full or become read-only: no SIGBUS, nothing lost, and it recovers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SMALL = 'mount -t tmpfs -o size=6m tmpfs "$1"; '
KINDS = (
    "consumequeue",
    "config",
    "index",
    "commitlog",
    "timerlog",
    "deliveries",
    "consumequeue_ext",
)
"""The folders of a store; without --every-fault the first two."""


def can_mount(folder: Path) -> bool:
    """A mount in a name space of its own: root on Linux."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def said_by(module: str, folder: Path, *words: str, first: str = "") -> Any:
    """What a program says that may mount what it likes; first: a command for the shell before it."""
    if not can_mount(folder):
        # A container may forbid mounts to root as well; the faked disk of tests/store runs everywhere.
        pytest.skip("needs root and unshare(1) to mount a small tmpfs; tests/store fakes it else")
    script = ["sh", "-c", first + 'shift; exec "$@"', "sh", str(folder)]
    run = [sys.executable, "-m", module, str(folder), *words]
    done = subprocess.run(
        ["unshare", "-m", *script, *run], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_full_file_system_loses_no_message_and_no_process(tmp_path: Path) -> None:
    """R9."""
    numbers = said_by("tests.crash.full_disk_writer", tmp_path, first=SMALL)
    first, after_first, second, after_second, after_reopen, damages = numbers
    assert first > 1000
    assert after_first == first
    assert second > 200
    assert after_second == after_reopen == first + second
    assert damages == 0


def test_due_messages_come_once_a_full_file_system_has_room(
    tmp_path: Path,
) -> None:
    """R9, with delays and timers; consumers are served while it is full."""
    numbers = said_by("tests.crash.full_disk_broker", tmp_path, first=SMALL)
    first, served_when_full, second, lost = numbers
    assert first > 50
    assert served_when_full == first
    assert second > first
    assert lost == 0


def test_one_kind_of_file_on_a_full_file_system_loses_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """R9: what needs no room there works meanwhile, the rest when there is room."""
    kinds = KINDS if request.config.getoption("--every-fault") else KINDS[:2]
    said = said_by("tests.crash.full_disk_kinds", tmp_path, *kinds)
    assert set(said) == set(kinds)
    for before, full, in_all, lost in said.values():
        assert before > 30
        assert in_all > before + full
        assert lost == 0
    assert said["config"][1] > 100


def test_a_read_only_disk_loses_nothing_and_serves_reads(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """An ext4 with an error, by option: the broker takes no more, until the disk is checked and it starts."""
    if not request.config.getoption("--every-fault"):
        pytest.skip("makes a file system on a loop device; runs with --every-fault")
    before, sure, lost, again = said_by("tests.crash.read_only_disk", tmp_path)
    assert before > 30
    assert sure >= before
    assert (lost, again) == (0, 1)
