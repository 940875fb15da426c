"""docs/faststream.md: its first program, run as a reader would run it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pocketmq.testing import InProcess
from tests.house.doc_blocks import NAME_SERVER, ROOT, blocks

PAGE = ROOT / "docs" / "faststream.md"


def test_the_first_program_of_the_page_runs(server: InProcess, tmp_path: Path) -> None:
    program, command, caller, test = (
        block.text.replace(NAME_SERVER, server.namesrv)
        for block in blocks(PAGE, "python", "console")
        if block.words.get("run by") == "tests/integrations/test_faststream_page.py"
    )
    (tmp_path / "orders.py").write_text(program)
    words = shlex.split(command)
    assert words == ["faststream", "run", "orders:app"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(code: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
        try:
            done = run(caller)
            # The page's test is called as pytest calls it.
            checked = run(f"import asyncio\n{test}\nasyncio.run(test_bill())\n")
            invoices = server.wait_for_messages("invoices", 3)
        finally:
            worker.terminate()
            worker.wait()
    assert done.stdout == "order 3: 9.00 EUR\n", done.stderr + (tmp_path / "log").read_text()
    assert checked.returncode == 0, checked.stderr
    assert {each.body.decode() for each in invoices} == {
        "order 1: 5.00 EUR",
        "order 2: 7.00 EUR",
        "order 3: 9.00 EUR",
    }
