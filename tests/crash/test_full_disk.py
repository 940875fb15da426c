"""R9 on a real file system of 6 MiB: no SIGBUS, nothing lost, and it goes on when there is room."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_A_SMALL_FILE_SYSTEM = (
    'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" -m tests.crash.full_disk_writer "$1"'
)


def can_mount(folder: Path) -> bool:
    """A mount in a name space of its own: root on Linux."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_a_file_system_that_fills_up_costs_no_message_and_no_process(tmp_path: Path) -> None:
    """R9."""
    if not can_mount(tmp_path):
        # A container may forbid mounts to root as well; the faked disk of tests/store runs everywhere.
        pytest.skip("needs root and unshare(1) to mount a small tmpfs; tests/store fakes it else")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", IN_A_SMALL_FILE_SYSTEM, "sh", str(tmp_path), sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, after_first, second, after_second, after_reopen, damages = json.loads(done.stdout)
    assert first > 1000
    assert after_first == first
    assert second > 200
    assert after_second == after_reopen == first + second
    assert damages == 0
