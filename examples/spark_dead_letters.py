"""Dead letters by cause: what landed in %DLQ% topics, from which topic, after how many tries.

    python examples/spark_dead_letters.py /data/broker-a/store

A message gets there when its group's retries are used up, or when the consumer gives it back for good.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pocketmq.bulk import find_roots
from pocketmq.bulk.side_files import read_side_file
from pocketmq.bulk.store import StoreSnapshot
from pocketmq.spark import session

_LIMITS = "`group` string, retryMaxTimes int"
_RETRY_MAX_TIMES = 16


def retry_limits(spark: SparkSession, path: str) -> DataFrame:
    """How often each group tries, by subscriptionGroup.json."""
    limits: dict[str, int] = {}
    for root in find_roots(path):
        table = read_side_file(StoreSnapshot(root), "subscriptionGroup.json")
        for group, config in (table.get("subscriptionGroupTable") or {}).items():
            limits[group] = int(config.get("retryMaxTimes", _RETRY_MAX_TIMES))
    return spark.createDataFrame(sorted(limits.items()), _LIMITS)


def dead_letters(spark: SparkSession, path: str) -> DataFrame:
    """Columns: group, originTopic, tags, cause, tries, messages, first, last."""
    letters = (
        spark.read.format("pocketmq")
        .option("subscribePattern", "%DLQ%.*")
        .option("columns", "topic,tags,properties,reconsumeTimes,storeTimestamp")
        .load(path)
    )
    used_up = f.col("reconsumeTimes") >= f.coalesce("retryMaxTimes", f.lit(_RETRY_MAX_TIMES))
    origin = f.coalesce(f.col("properties.RETRY_TOPIC"), f.col("properties.DLQ_ORIGIN_TOPIC"))
    return (
        letters.withColumn("group", f.expr("substring(topic, 6)"))
        .join(f.broadcast(retry_limits(spark, path)), "group", "left")
        .withColumn("cause", f.when(used_up, "retries used up").otherwise("given back for good"))
        .groupBy("group", origin.alias("originTopic"), "tags", "cause")
        .agg(
            f.max("reconsumeTimes").alias("tries"),
            f.count("*").alias("messages"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
        )
        .orderBy("group", "originTopic", "tags", "cause")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    dead_letters(session(), parser.parse_args().path).show(1000, truncate=False)


if __name__ == "__main__":
    main()
