"""Who has consumed what: each group's offsets (consumerOffset.json) joined with the messages.

    python examples/spark_who_has_consumed.py /data/broker-a/store

For every group, topic and queue: messages consumed and waiting, the oldest that waits, and how old it is
compared with the newest message of the queue.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pocketmq.bulk import find_roots
from pocketmq.bulk.side_files import offset_rows
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.spark import session

_OFFSETS = "brokerName string, `group` string, topic string, queueId int, nextOffset bigint"


def group_offsets(spark: SparkSession, path: str) -> DataFrame:
    """The groups' offsets as the brokers last saved them (every five seconds, and on stop)."""
    rows = [
        (root.broker_name, group, topic, queue_id, offset)
        for root in find_roots(path)
        for group, topic, queue_id, offset in offset_rows(StoreSnapshot(root))
    ]
    return spark.createDataFrame(rows, _OFFSETS)


def who_has_consumed(spark: SparkSession, path: str) -> DataFrame:
    """Columns: group, topic, brokerName, queueId, nextOffset, consumed, waiting, oldestWaiting, lag (s)."""
    messages = (
        spark.read.format("pocketmq")
        .option("columns", "brokerName,topic,queueId,queueOffset,storeTimestamp")
        .load(path)
    )
    place = ["brokerName", "topic", "queueId"]
    waits = f.col("queueOffset") >= f.col("nextOffset")
    return (
        group_offsets(spark, path)
        .join(messages, place)
        .groupBy("group", *place, "nextOffset")
        .agg(
            f.count_if(~waits).alias("consumed"),
            f.count_if(waits).alias("waiting"),
            f.min(f.when(waits, f.col("storeTimestamp"))).alias("oldestWaiting"),
            f.max("storeTimestamp").alias("newest"),
        )
        .withColumn("lag", f.col("newest").cast("double") - f.col("oldestWaiting").cast("double"))
        .select("group", *place, "nextOffset", "consumed", "waiting", "oldestWaiting", "lag")
        .orderBy("group", *place)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    who_has_consumed(session(), parser.parse_args().path).show(1000, truncate=False)


if __name__ == "__main__":
    main()
