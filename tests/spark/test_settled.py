"""What a Python process of Spark does once, to spare work that each query would repeat."""

import os
import platform
import subprocess
import sys

import pytest

# Batches as a task decodes them: some arrays, then all of them freed. Prints the faults of later ones.
_BATCHES = """
import resource
import numpy as np
from pocketmq.spark.settled import keep_freed

def batch():
    return [np.ones(size, np.uint8) for size in (300_000, 1_000_000, 400_000, 900_000)]

keep_freed()
batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(**environment: str) -> int:
    others = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    answer = subprocess.run(
        [sys.executable, "-c", _BATCHES],
        env=others | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other habits")
def test_a_reused_worker_keeps_what_its_batches_free() -> None:
    assert _faults(SPARK_REUSE_WORKER="1") * 10 < _faults()
