"""docs/taskiq.md: its first program, run as a reader would run it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pocketmq.testing import InProcess
from tests.house.doc_blocks import NAME_SERVER, ROOT, blocks

PAGE = ROOT / "docs" / "taskiq.md"


def test_the_first_program_of_the_page_runs(server: InProcess, tmp_path: Path) -> None:
    tasks, command, caller = (
        block.text.replace(NAME_SERVER, server.namesrv)
        for block in blocks(PAGE, "python", "console")
        if block.words.get("run by") == "tests/integrations/test_taskiq_page.py"
    )
    (tmp_path / "tasks.py").write_text(tasks)
    [schedules] = [
        block.text
        for block in blocks(PAGE, "python")
        if block.words["run by"].endswith("schedules")
    ]
    (tmp_path / "schedules.py").write_text(schedules)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    taskiq, *words, app = shlex.split(command)
    assert (taskiq, app) == ("taskiq", "tasks:broker")
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "taskiq", *words, "schedules:broker"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            done = subprocess.run(
                [sys.executable, "-c", caller],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
        finally:
            worker.terminate()
            worker.wait()
    [nightly] = server.call(server.aio.admin.schedules.list())
    assert (nightly.name, nightly.schedule.time_zone) == (
        "taskiq.taskiq.schedules:nightly:0",
        "Europe/Berlin",
    )
    assert done.stdout == "5\n42\n", done.stderr + (tmp_path / "log").read_text()
