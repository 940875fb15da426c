"""Messages and bytes per topic, tag and minute, from the files of one or several brokers.

    python examples/spark_messages_per_minute.py /data/broker-a/store

Only tags and times are decoded (columns=...), so bodies are not touched but for their sizes in the index.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pocketmq.spark import session


def messages_per_minute(spark: SparkSession, path: str, **options: str) -> DataFrame:
    """Columns: topic, tags, minute, messages, bytes (of whole records)."""
    frame = (
        spark.read.format("pocketmq")
        .option("columns", "topic,tags,storeTimestamp,storeSize")
        .options(**options)
        .load(path)
    )
    return (
        frame.groupBy(
            "topic", "tags", f.date_trunc("minute", f.col("storeTimestamp")).alias("minute")
        )
        .agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"))
        .orderBy("minute", "topic", "tags")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    messages_per_minute(session(), parser.parse_args().path).show(1000, truncate=False)


if __name__ == "__main__":
    main()
