"""kombu's own cases (t/integration/common.py) judge the transport: all of them, as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

from pocketmq.testing import InProcess
from tests.integrations.sources import source_of

CASES = Path(__file__).with_name("kombu_cases.py")


def test_the_cases_of_kombu_pass_and_none_is_skipped() -> None:
    with InProcess() as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                *("-c", os.devnull, "--rootdir", str(CASES.parent), str(CASES)),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(source_of("kombu")),
                "POCKETMQ_SERVER": server.namesrv,
            },
            cwd=CASES.parent,
            capture_output=True,
            text=True,
        )
    passed = re.search(r"^(\d+) passed(, \d+ rerun)? in ", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout + done.stderr
    assert int(passed[1]) >= 47
