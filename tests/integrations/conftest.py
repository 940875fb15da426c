"""A broker for all tests of a module, and Celery workers as processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

import pocketmq.integrations.kombu  # noqa: F401 - makes `pocketmq://` known
from pocketmq.testing import InProcess
from tests.kit.waiting import until

FOLDER = Path(__file__).parent

# It imports kombu's own tests, which only the run of test_kombu_suite.py has on its path.
collect_ignore = [] if "POCKETMQ_SERVER" in os.environ else ["kombu_cases.py"]


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    with InProcess() as running:
        yield running


class StartWorker(Protocol):
    def __call__(self, broker: str, *options: str) -> "subprocess.Popen[str]": ...


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers of celery_app.py that end with the test; each is ready when it is returned."""
    with ExitStack() as stack:
        count = 0

        def start(broker: str, *options: str) -> "subprocess.Popen[str]":
            nonlocal count
            count += 1
            log = tmp_path / f"worker-{count}.log"
            stream = stack.enter_context(log.open("w"))
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-l", "INFO"),
                    *("-n", f"w{count}@host.test", *options),
                ],
                env={**os.environ, "CELERY_BROKER": broker, "PYTHONPATH": str(FOLDER)},
                cwd=tmp_path,
                stdout=stream,
                stderr=stream,
                text=True,
                start_new_session=True,
            )
            stack.callback(_end, process)
            until(lambda: " ready." in log.read_text() or process.poll() is not None, "a worker")
            assert process.poll() is None, log.read_text()
            return process

        yield start


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        # Its children, too.
        os.killpg(process.pid, 9)
    process.wait()
