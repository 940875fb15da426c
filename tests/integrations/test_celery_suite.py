"""Celery's own integration cases judge worker and results: a few of each kind, all of them by an option.

Run whole, they need a Redis at $REDIS_HOST:$REDIS_PORT, where its tasks note what they did; what is left out
then are the cases of other backends, and those that look into Redis for what its backend keeps there.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.testing import InProcess
from tests.integrations.sources import source_of

FOLDER = Path(__file__).parent
FEW = {
    "test_canvas.py": (
        "test_link_error::test_link_error",
        "test_chain::test_simple_chain",
        "test_chain::test_nested_chain_group_lone",
        "test_chain::test_groupresult_serialization",
        "test_group::test_nested_group_group",
        "test_group::test_large_group",
        "test_chord::test_simple_chord_with_a_delay_in_group_save",
        "test_chord::test_nested_group_chain",
        "test_chord::test_single_task_header",
        "test_chord::test_add_to_chord",
        "test_chord::test_add_chord_to_chord",
        "test_chord::test_generator[3]",
    ),
    "test_inspect.py": ("test_Inspect::test_ping", "test_Inspect::test_registered"),
    "test_tasks.py": ("test_tasks::test_basic_task", "test_tasks::test_wrong_arguments"),
}
OF_OTHERS = ("test_backend.py", "test_cache_backend.py", "test_redis_backend.py")
# They read Redis's keys or channels, ask for an ETA that a worker holds, or are expected to fail with Redis.
NOT_OURS = (
    "test_chord_on_error",
    "(test_error_propagates_from_chord and not chord2)",
    "test_asyncresult_forget_cancels_subscription",
    "test_asyncresult_get_cancels_subscription",
    "test_chord_header_id_duplicated_on_rabbitmq_msg_duplication",
    "test_scheduled",
)


def test_cases_of_celery_pass(pytestconfig: pytest.Config) -> None:
    source = source_of("celery")
    if pytestconfig.getoption("--celery-suite"):
        chosen = ["t/integration", *(f"--ignore=t/integration/{name}" for name in OF_OTHERS)]
        chosen += ["-k", " and ".join(f"not {name}" for name in NOT_OURS)]
    else:
        chosen = [f"t/integration/{file}::{case}" for file in FEW for case in FEW[file]]
    with InProcess() as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
                *("-p", "celery_door", "-p", "celery.contrib.pytest", "--rootdir", "."),
                *chosen,
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(FOLDER),
                "TEST_BROKER": f"pocketmq://{server.namesrv}",
                "TEST_BACKEND": f"redispocketmq://{server.namesrv}",
            },
            cwd=source,
            capture_output=True,
            text=True,
        )
    counts = re.search(r"^(\d+) passed(?!.*failed)", done.stdout, re.MULTILINE)
    assert counts is not None, done.stdout + done.stderr
    assert int(counts[1]) >= sum(map(len, FEW.values()))
