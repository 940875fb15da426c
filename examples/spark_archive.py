"""A Parquet archive with partitions by topic and day, kept up by a stream that can be stopped at any time.

    python examples/spark_archive.py /data/broker-a/store /archive

Run it by cron or leave it running: the checkpoint beside the archive says how far it is, kill -9 included.
With it, what retention deletes from the broker after three days stays readable for as long as wanted.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from pocketmq.spark import session


def archive(spark: SparkSession, path: str, out: str, **options: str) -> StreamingQuery:
    """Starts a query that writes all that is there now, and ends."""
    messages = (
        spark.readStream.format("pocketmq")
        .option("columns", "all")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load(path)
    )
    return (
        messages.withColumn("day", f.to_date("storeTimestamp"))
        # All of a topic's day in one task: few large files, where each task would else write one of each day.
        .repartition("topic", "day")
        .writeStream.format("parquet")
        .partitionBy("topic", "day")
        .option("maxRecordsPerFile", 5_000_000)
        .option("checkpointLocation", str(Path(out) / "_checkpoint"))
        .trigger(availableNow=True)
        .start(str(Path(out) / "messages"))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    parser.add_argument("out", help="folder of the archive")
    options = parser.parse_args()
    query = archive(session(), options.path, options.out)
    query.awaitTermination()
    print(f"{sum(p['numInputRows'] for p in query.recentProgress)} messages added to {options.out}")


if __name__ == "__main__":
    main()
