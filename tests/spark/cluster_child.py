"""Reads stores on a cluster of two executor processes that have no package of ours but the shipped zip.

cluster_child.py ZIP OUT PATH...   writes the row counts and where they were read as JSON to OUT.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pocketmq.spark import setup


def where(rows: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Of one task: the parent of its Python daemon (the executor), and the rows it saw."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
    yield int(daemon.split()[1]), sum(1 for _ in rows)


def main(bundle: str, out: str, path: str) -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    conf = {
        # Half the CPU of a start: see SHORT_LIVED_JVM in conftest.py.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.locality.wait": "0",
        "spark.submit.pyFiles": bundle,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    setup(spark)
    frame = spark.read.format("pocketmq").option("minPartitions", "8").load(path)
    seen = frame.rdd.mapPartitions(where).collect()
    counts = frame.groupBy("brokerName").count().collect()
    Path(out).write_text(
        json.dumps(
            {
                "executors": len({executor for executor, _ in seen}),
                "tasks": len(seen),
                "rows": sum(rows for _, rows in seen),
                "brokers": {r.brokerName: r["count"] for r in counts},
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
