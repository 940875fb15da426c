"""A streaming query in a process of its own, for tests that kill it.

stream_child.py STORE CHECKPOINT OUT LIMIT [once]    once: it ends when it has read what is there
"""

import os
import sys

from pyspark.sql import SparkSession


def session_to_kill() -> SparkSession:
    # No pocketmq.spark.session: its checks cost two processes, and this one is started to be killed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.driver.extraJavaOptions": os.environ["SHORT_LIVED_JVM"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        # A crowded machine starts Python slowly.
        "spark.network.timeout": "600s",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    # The source is found by its module pyspark_pocketmq.
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(store: str, checkpoint: str, out: str, limit: str, once: str = "") -> None:
    writer = (
        session_to_kill()
        .readStream.format("pocketmq")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load(store)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
    )
    if once:
        writer = writer.trigger(availableNow=True)
    writer.start(out).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
