"""The declarative pipeline of examples/pipeline: `spark-pipelines run`, and again for new messages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.house.doc_blocks import ROOT
from tests.spark.peers import PeerMissing, connect_packages, or_missing
from tests.spark.test_versions import connect_server
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = ROOT / "examples" / "pipeline"
CLI = Path(pyspark.__file__).parent / "pipelines" / "cli.py"


def add(store: WrittenStore, first: int, count: int) -> None:
    store.add(
        Message(
            topic="Orders",
            queue_id=i % 2,
            body=b'{"id": %d, "amount": %d.5}' % (i, i),
            properties=b"TAGS\x01t%d\x02" % (i % 3),
        )
        for i in range(first, first + count)
    )


def run(url: str, packages: Path, pipeline: Path, store: Path) -> None:
    """What the program `spark-pipelines` starts, at a server that is there."""
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    answer = subprocess.run(
        [sys.executable, str(CLI), "run"],
        cwd=pipeline,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {
            "PYTHONPATH": path,
            "SPARK_REMOTE": url,
            "POCKETMQ_STORE": str(store.parent.parent / "*" / "store"),
        },
    )
    assert answer.returncode == 0, (answer.stdout + answer.stderr)[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(not CLI.exists(), reason="this PySpark has no declarative pipelines")
def test_a_pipeline_has_each_message_once_after_two_runs(
    spark: "SparkSession", tmp_path: Path
) -> None:
    try:
        packages = connect_packages()
    except PeerMissing as missing:
        or_missing(missing)
        raise
    store = WrittenStore(tmp_path / "stores" / "broker-a" / "store")
    pipeline = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, pipeline)
    spec = pipeline / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("///data/orders-pipeline", f"//{tmp_path}/storage"))
    with connect_server(spark) as url:
        for made in (0, 40):
            add(store, made, 40 + made // 2)
            run(url, packages, pipeline, store.root)
            for name in ("messages", "by_tag"):
                spark.catalog.refreshTable(f"default.{name}")
            rows = spark.table("default.messages").collect()
            count = made + 40 + made // 2
            assert sorted(
                (r.brokerName, r.queueId, r.queueOffset, r.tags, r.id, r.amount) for r in rows
            ) == sorted(("broker-a", i % 2, i // 2, f"t{i % 3}", i, i + 0.5) for i in range(count))
            assert {tuple(r) for r in spark.table("default.by_tag").collect()} == {
                (f"t{tag}", len(range(tag, count, 3)), sum(i + 0.5 for i in range(tag, count, 3)))
                for tag in range(3)
            }
    for name in ("messages", "by_tag"):
        spark.sql(f"DROP TABLE default.{name}")
