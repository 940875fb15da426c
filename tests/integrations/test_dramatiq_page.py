"""docs/dramatiq.md: its first program, run as a reader would run it."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from pocketmq.testing import InProcess
from tests.house.doc_blocks import NAME_SERVER, ROOT, blocks
from tests.kit.waiting import until

PAGE = ROOT / "docs" / "dramatiq.md"


def test_the_first_program_of_the_page_runs(server: InProcess, tmp_path: Path) -> None:
    tasks, command, caller = (
        block.text.replace(NAME_SERVER, server.namesrv)
        for block in blocks(PAGE, "python", "console")
        if block.words.get("run by") == "tests/integrations/test_dramatiq_page.py"
    )
    (tmp_path / "tasks.py").write_text(tasks)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    dramatiq, *words = shlex.split(command)
    assert dramatiq == "dramatiq"
    log = tmp_path / "log"
    with log.open("w") as stream:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dramatiq", *words],
            cwd=tmp_path,
            env=environment,
            stdout=stream,
            stderr=stream,
        )
        try:
            done = subprocess.run(
                [sys.executable, "-c", caller],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            until(
                lambda: "hello, later" in log.read_text() or worker.poll() is not None,
                "the delayed task",
            )
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()
    said = log.read_text()
    assert said.index("hello, soon") < said.index("hello, later")
    assert "Traceback" not in said
