"""Runs all Spark tests on another PySpark; `make test` has the newest, and the essentials on the oldest.

python -m tests.spark.matrix                   PySpark 4.0, about five minutes and 420 MB the first time
python -m tests.spark.matrix 4.1.* 4.2.*       other versions
"""

import os
import subprocess
import sys

from tests.spark.peers import OLDEST, REPOSITORY, oldest_pyspark


def main(versions: list[str]) -> int:
    worst = 0
    for version in versions or [OLDEST]:
        folder = str(oldest_pyspark(version))
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
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
