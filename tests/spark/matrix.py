"""Runs the Spark tests on the oldest PySpark that is supported; `make test` runs them on the newest.

    python -m tests.spark.matrix                   PySpark 4.0, about five minutes and 420 MB the first time
    python -m tests.spark.matrix 4.1.* 4.2.*       other versions

A version is installed once beside the environment (`.peers/pyspark-VERSION`, or $POCKETMQ_PEERS), without
what it depends on, and goes before the environment's own on the path: numpy, pyarrow and py4j are shared.
"""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
OLDEST = "4.0.*"


def installed(version: str) -> Path:
    """The folder of a PySpark version, installed by pip when it is not there."""
    cache = Path(os.environ.get("POCKETMQ_PEERS") or REPOSITORY / ".peers")
    folder = cache / f"pyspark-{version.rstrip('.*')}"
    done = folder / ".done"
    if not done.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--upgrade",
            "--target",
        ]
        subprocess.run([*command, str(folder), f"pyspark=={version}"], check=True)
        done.touch()
    return folder


def main(versions: list[str]) -> int:
    worst = 0
    for version in versions or [OLDEST]:
        path = os.pathsep.join(
            filter(None, (str(installed(version)), os.environ.get("PYTHONPATH")))
        )
        sys.stdout.write(f"PySpark {version}\n")
        sys.stdout.flush()
        answer = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/spark"],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
        worst = max(worst, answer.returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
