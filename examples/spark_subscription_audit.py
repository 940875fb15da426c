"""The subscription audit: tags that are produced and no group subscribes to, groups whose members differ.

    python examples/spark_subscription_audit.py /data/broker-a/store subscriptions.jsonl

subscriptions.jsonl holds what members subscribed when, one JSON object a line, as collected over time:
    {"seen": 1790000000000, "group": "g", "client": "10.0.0.1@1", "topic": "T", "expression": "A || B"}
RocketMQ keeps one subscription per group and topic: when members differ, messages of the others' tags are
filtered away, and their offsets are committed all the same. The third table counts those messages.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pocketmq.spark import session

_SEEN = "seen bigint, `group` string, client string, topic string, expression string"


def subscriptions(spark: SparkSession, path: str) -> DataFrame:
    """What was seen, with `tags` as a sorted array; empty means every message."""
    parts = f.transform(f.split("expression", r"\|\|"), lambda t: f.trim(t))
    tags = f.array_sort(f.filter(parts, lambda t: (t != "*") & (t != "")))
    return spark.read.schema(_SEEN).json(path).withColumn("tags", tags)


def unsubscribed_tags(messages: DataFrame, seen: DataFrame) -> DataFrame:
    """Columns: topic, tags, messages, first, last: produced, but no group has ever asked for them."""
    counted = messages.groupBy("topic", "tags").agg(
        f.count("*").alias("messages"),
        f.min("storeTimestamp").alias("first"),
        f.max("storeTimestamp").alias("last"),
    )
    everything = seen.where(f.size("tags") == 0).select("topic").distinct()
    asked = seen.select("topic", f.explode("tags").alias("tags")).distinct()
    return (
        counted.join(everything, "topic", "left_anti")
        .join(asked, ["topic", "tags"], "left_anti")
        .orderBy(f.desc("messages"), "topic", "tags")
    )


def differing_groups(seen: DataFrame) -> DataFrame:
    """Columns: group, topic, from, to, variants: members with different expressions at one time.

    Members count as together when they were seen in the same minute.
    """
    minute = f.date_trunc("minute", f.timestamp_millis("seen"))
    return (
        seen.withColumn("minute", minute)
        .groupBy("group", "topic", "minute")
        .agg(f.collect_set(f.array_join("tags", " || ")).alias("variants"))
        .where(f.size("variants") > 1)
        .groupBy("group", "topic")
        .agg(
            f.min("minute").alias("from"),
            f.max("minute").alias("to"),
            f.array_sort(f.array_distinct(f.flatten(f.collect_list("variants")))).alias("variants"),
        )
        .orderBy("group", "topic")
    )


def filtered_away(messages: DataFrame, seen: DataFrame, differing: DataFrame) -> DataFrame:
    """Columns: group, topic, tags, messages: wanted by a member while the group differed."""
    wanted = seen.select("group", "topic", f.explode("tags").alias("tags")).distinct()
    during = (f.col("storeTimestamp") >= f.col("from")) & (
        f.col("storeTimestamp") < f.col("to") + f.expr("INTERVAL 1 MINUTE")
    )
    return (
        messages.join(differing, "topic")
        .where(during)
        .join(wanted, ["group", "topic", "tags"])
        .groupBy("group", "topic", "tags")
        .agg(f.count("*").alias("messages"))
        .orderBy("group", "topic", "tags")
    )


def audit(spark: SparkSession, path: str, seen_path: str) -> dict[str, DataFrame]:
    """All three tables by name."""
    messages = (
        spark.read.format("pocketmq").option("columns", "topic,tags,storeTimestamp").load(path)
    )
    seen = subscriptions(spark, seen_path).cache()
    differing = differing_groups(seen)
    return {
        "unsubscribed_tags": unsubscribed_tags(messages, seen),
        "differing_groups": differing,
        "filtered_away": filtered_away(messages, seen, differing),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    parser.add_argument("subscriptions", help="JSON lines of what members subscribed")
    options = parser.parse_args()
    for name, table in audit(session(), options.path, options.subscriptions).items():
        print(name)
        table.show(1000, truncate=False)


if __name__ == "__main__":
    main()
