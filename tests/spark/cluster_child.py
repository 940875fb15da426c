"""Reads stores on a cluster of two executor processes that have no package of ours but the shipped zip.

cluster_child.py ZIP OUT PATH KILLS   the number of executors, and KILLS times what was read while one was
                                      killed, and in which task, as JSON to OUT.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from pocketmq.spark import setup


def executor() -> int:
    """Its process: the parent of this task's Python daemon."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
    return int(daemon.split()[1])


def read_and_die(rows: Iterable[Any]) -> Iterator[tuple[str, int, int, int, int]]:
    """The places of the rows, the number of this try, and the task. The first task kills its executor in the
    middle, and is then done elsewhere."""
    context = TaskContext.get()
    assert context is not None
    dies = context.partitionId() == 0 and context.attemptNumber() == 0
    for number, row in enumerate(rows):
        if dies and number == 50:
            os.kill(executor(), signal.SIGKILL)
        place = row.brokerName, row.queueId, row.queueOffset
        yield *place, context.attemptNumber(), context.partitionId()


def main(bundle: str, out: str, path: str, kills: str) -> None:
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
        # A killed executor is made anew as often as it takes.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.submit.pyFiles": bundle,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    setup(spark)
    frame = spark.read.format("pocketmq").option("minPartitions", "8").load(path)
    places = frame.select("brokerName", "queueId", "queueOffset").rdd
    # The driver is in this list, too.
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    rounds = [places.mapPartitions(read_and_die).collect() for _ in range(int(kills))]
    Path(out).write_text(json.dumps({"executors": executors, "rounds": rounds}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
