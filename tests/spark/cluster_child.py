"""Reads stores on a cluster of two executor processes that have no package of ours but the shipped zip.

cluster_child.py ZIP OUT PATH KILLED KILLS   the number of executors; what was read while each task's Python
                                             processes were killed, 20 times in all, and what while KILLS
                                             executors were; by which try and task, as JSON to OUT. Killed
                                             executors are noted in the folder KILLED.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from pocketmq.spark import setup

TASKS = 8
WORKER_KILLS = 20


def kills_of(task: int, kills: int) -> int:
    """How many of so many kills are this task's."""
    return kills // TASKS + (task < kills % TASKS)


def workers() -> list[int]:
    """The Python processes of this task's executor, this one last: one that reads, and one that runs this."""
    mine = os.getpid()
    found = [worker for daemon in children(executor()) for worker in children(daemon)]
    return [pid for pid in found if pid != mine] + [mine]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


def executor() -> int:
    """Its process: the parent of this task's Python daemon."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2]
    return int(daemon.split()[1])


def read_without_workers(rows: Iterable[Any]) -> Iterator[tuple[str, int, int, int, int]]:
    """As read_and_die(), but the first tries of each task kill all Python workers of its executor, that
    which reads among them."""
    context = TaskContext.get()
    assert context is not None
    dies = context.attemptNumber() < kills_of(context.partitionId(), WORKER_KILLS)
    for number, row in enumerate(rows):
        if dies and number == 50:
            for worker in workers():
                os.kill(worker, signal.SIGKILL)
        place = row.brokerName, row.queueId, row.queueOffset
        yield *place, context.attemptNumber(), context.partitionId()


def read_and_die(
    killed: str, kills: int, rows: Iterable[Any]
) -> Iterator[tuple[str, int, int, int, int]]:
    """The places of the rows, the number of this try, and the task. The first tries kill their executor in
    the middle, and are then done elsewhere.

    killed: a folder for a file of each killed executor: a crowded machine fails tries by itself.
    """
    context = TaskContext.get()
    assert context is not None
    task = context.partitionId()
    noted = len(list(Path(killed).glob(f"{task}-*")))
    dies = noted < kills_of(task, kills)
    for number, row in enumerate(rows):
        if dies and number == 50:
            (Path(killed) / f"{task}-{executor()}").touch()
            os.kill(executor(), signal.SIGKILL)
        place = row.brokerName, row.queueId, row.queueOffset
        yield *place, context.attemptNumber(), task


def main(bundle: str, out: str, path: str, killed: str, kills: str) -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    conf = {
        "spark.driver.extraJavaOptions": os.environ["SHORT_LIVED_JVM"],
        "spark.executor.extraJavaOptions": os.environ["SHORT_LIVED_JVM"],
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.locality.wait": "0",
        # More tries than are killed, with room for what a crowded machine does by itself.
        "spark.task.maxFailures": "10",
        # A killed executor is made anew as often as it takes.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.submit.pyFiles": bundle,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    setup(spark)
    frame = spark.read.format("pocketmq").option("minPartitions", str(TASKS)).load(path)
    places = frame.select("brokerName", "queueId", "queueOffset").rdd
    # The driver is in this list, too.
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    without = places.mapPartitions(read_without_workers).collect()
    elsewhere = places.mapPartitions(partial(read_and_die, killed, int(kills))).collect()
    found = {"executors": executors, "workers": without, "elsewhere": elsewhere}
    Path(out).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
