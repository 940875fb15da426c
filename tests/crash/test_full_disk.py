"""R9 on a real file system of 6 MiB: no SIGBUS, nothing lost, and it goes on when there is room."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_A_SMALL_FILE_SYSTEM = 'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" -m "$3" "$1"'


def can_mount(folder: Path) -> bool:
    """A mount in a name space of its own: root on Linux."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def in_a_small_file_system(module: str, folder: Path) -> list[int]:
    """What the program says that has `folder` to itself, on 6 MiB."""
    if not can_mount(folder):
        # A container may forbid mounts to root as well; the faked disk of tests/store runs everywhere.
        pytest.skip("needs root and unshare(1) to mount a small tmpfs; tests/store fakes it else")
    script = ["sh", "-c", IN_A_SMALL_FILE_SYSTEM, "sh", str(folder), sys.executable, module]
    done = subprocess.run(
        ["unshare", "-m", *script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    numbers: list[int] = json.loads(done.stdout)
    return numbers


def test_a_file_system_that_fills_up_costs_no_message_and_no_process(tmp_path: Path) -> None:
    """R9."""
    numbers = in_a_small_file_system("tests.crash.full_disk_writer", tmp_path)
    first, after_first, second, after_second, after_reopen, damages = numbers
    assert first > 1000
    assert after_first == first
    assert second > 200
    assert after_second == after_reopen == first + second
    assert damages == 0


def test_a_broker_on_a_full_file_system_goes_on_with_what_is_due_when_there_is_room(
    tmp_path: Path,
) -> None:
    """R9, with delays and timers; consumers are served while it is full."""
    numbers = in_a_small_file_system("tests.crash.full_disk_broker", tmp_path)
    first, served_when_full, second, lost = numbers
    assert first > 50
    assert served_when_full == first
    assert second > first
    assert lost == 0
