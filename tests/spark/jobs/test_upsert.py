"""examples/spark_upsert_iceberg.py, stopped before and killed behind its commit: each message counts once."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import StreamingQueryException

from pocketmq.spark.stream import HAS_LIMITS
from tests.house.doc_blocks import ROOT
from tests.spark.conftest import CHILD_ENV
from tests.spark.jobs.test_examples import example
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def totals(module: Any, warehouse: Path) -> list[dict[str, Any]]:
    rows = module.open_table(module.open_catalog(str(warehouse))).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["key"])


@pytest.mark.slow
@pytest.mark.skipif(not HAS_LIMITS, reason="a run of what is available would be one batch")
def test_totals_count_each_message_once_after_kills(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(
        Message(
            topic="Orders",
            queue_id=i % 2,
            body=b'{"amount": %d}' % i,
            properties=b"KEYS\x01k%d\x02" % (i % 7),
        )
        for i in range(120)
    )
    warehouse = tmp_path / "lake"
    warehouse.mkdir()
    # Behind the second batch's commit, before Spark's own.
    child = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("upsert_child.py")),
            str(store.root),
            str(warehouse),
            "2",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=CHILD_ENV | {"PYTHONPATH": str(ROOT)},
    )
    assert child.returncode == -signal.SIGKILL, child.stderr[-3000:]
    module = example("spark_upsert_iceberg")
    assert sum(row["messages"] for row in totals(module, warehouse)) == 80
    assert [path.name for path in (warehouse / "totals-checkpoint" / "commits").glob("[0-9]*")] == [
        "0"
    ]

    def follow() -> None:
        limit = {"maxOffsetsPerTrigger": "40"}
        module.follow(spark, str(store.root), "Orders", str(warehouse), **limit).awaitTermination()

    def refused(*_: Any) -> None:
        raise OSError("the disk is full")

    # The second batch comes again, and is there; the third cannot be committed.
    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", refused)
        with pytest.raises(StreamingQueryException):
            follow()
    assert sum(row["messages"] for row in totals(module, warehouse)) == 80
    follow()
    assert totals(module, warehouse) == [
        {"key": f"k{key}", "messages": len(range(key, 120, 7)), "amount": sum(range(key, 120, 7))}
        for key in range(7)
    ]
