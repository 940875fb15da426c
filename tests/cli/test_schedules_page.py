"""docs/schedules.md: its first schedule, run as a reader would run it."""

import shlex
import subprocess
import sys

import pytest

from pocketmq.cli.app import run
from pocketmq.testing import InProcess
from tests.house.doc_blocks import NAME_SERVER, ROOT, blocks
from tests.kit.waiting import until

PAGE = ROOT / "docs" / "schedules.md"


def test_the_first_schedule_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console, python = (block.text for block in blocks(PAGE, "console", "python"))
    with InProcess() as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
        for line in console.splitlines():
            name, *words = shlex.split(line)
            assert name == "pocketmq"
            if words[0] == "message":
                server.clock.advance(1)
                until(lambda: bool(server.messages("Reports")), "the first tick")
            assert run(words) == 0, line
        shown = capsys.readouterr().out
        assert "0 3 * * * Europe/Berlin" in shown
        assert "every 0:00:01" in shown
        assert "tick" in shown
        program = python.replace(NAME_SERVER, server.namesrv)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout.startswith("nightly "), done.stderr
