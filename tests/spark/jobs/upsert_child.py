"""Runs examples/spark_upsert_iceberg.py in a process of its own, which kills itself after a commit.

upsert_child.py STORE WAREHOUSE COMMITS
"""

import os
import signal
import sys
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.jobs.test_examples import example
from tests.spark.stream_child import session_to_kill


def main(store: str, warehouse: str, commits: str) -> None:
    left = int(commits)
    commit = SqlCatalog.commit_table

    def counted(*words: Any) -> Any:
        nonlocal left
        done = commit(*words)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(SqlCatalog, commit.__name__, counted)
    follow = example("spark_upsert_iceberg").follow
    follow(
        session_to_kill(), store, "Orders", warehouse, maxOffsetsPerTrigger="40"
    ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
