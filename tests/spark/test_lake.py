"""Lake tables read by Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.house.doc_blocks import ROOT, blocks
from tests.lake.lakes import copy, tables
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_the_rows_of_a_lake_table(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(
        Message(topic="Orders", queue_id=i % 2, properties=b"TAGS\x01t%d\x02" % (i % 3))
        for i in range(90)
    )
    copy(tmp_path / "lake", store.root)
    (block,) = [
        b
        for b in blocks(ROOT / "docs" / "lake.md", "python")
        if "spark/test_lake" in b.words.get("run by", "")
    ]
    with tables(tmp_path / "lake") as (catalog, _):
        orders = catalog.load_table("pocketmq.Orders")
        exec(compile(block.text, block.name, "exec"), {"spark": spark, "orders": orders})
        files = [task.file.file_path for task in orders.scan().plan_files()]
        rows = spark.read.parquet(*files).collect()
    assert capsys.readouterr().out.count("30") == 3
    assert sorted((r.queueId, r.queueOffset, r["properties"]["TAGS"]) for r in rows) == sorted(
        (i % 2, i // 2, f"t{i % 3}") for i in range(90)
    )
