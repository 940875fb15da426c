"""Dramatiq's own cases of callbacks, pipelines and groups judge the broker, in its stub broker's place.

Its source distribution has its tests, but not what they share: that is dramatiq_shared.py, filled in with
ours. Its cases for RabbitMQ and Redis need the clients of those.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pocketmq.testing import InProcess
from tests.integrations.sources import source_of

FILES = ("test_callbacks.py", "test_composition.py")


def test_the_cases_of_dramatiq_pass_and_none_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in FILES:
        shutil.copy(source_of("dramatiq") / "tests" / name, folder)
    (folder / "__init__.py").touch()
    for name in ("common", "conftest"):
        (folder / f"{name}.py").write_text("from dramatiq_shared import *\n")
    with InProcess() as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-c", os.devnull, "--rootdir", str(tmp_path)),
                *(f"tests/{name}" for name in FILES),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "POCKETMQ_SERVER": server.namesrv,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    passed = re.search(r"^(\d+) passed(, \d+ rerun)? in ", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout + done.stderr
    assert int(passed[1]) >= 24
