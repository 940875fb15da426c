"""A picture of a stream, drawn again after each batch: traffic by minute, and how far the stream is behind.

    python examples/spark_dashboard.py /data/broker-a/store dashboard.svg

Open the picture in a browser and reload it. Needs matplotlib.
"""

import argparse
import json
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from pocketmq.spark import session

DRAWN_EVERY_S = 5


def traffic(
    spark: SparkSession, path: str, *, once: bool = False, **options: str
) -> StreamingQuery:
    """Start a stream that counts into the table `traffic`. once: it ends with what is stored now."""
    counts = (
        spark.readStream.format("pocketmq")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1000000")
        .option("columns", "topic,storeTimestamp")
        .options(**options)
        .load(path)
        .groupBy("topic", f.date_trunc("minute", "storeTimestamp").alias("minute"))
        .count()
    )
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("traffic")
    return (writer.trigger(availableNow=True) if once else writer).start()


def backlogs(query: StreamingQuery) -> dict[str, list[tuple[str, int]]]:
    """By broker: when a batch began, and how many messages it left unread."""
    found: dict[str, list[tuple[str, int]]] = {}
    for progress in query.recentProgress:
        latest = json.loads(progress["sources"][0]["latestOffset"] or "{}")
        for broker, behind in latest.get("behind", {}).items():
            found.setdefault(broker, []).append((progress["timestamp"], behind["messages"]))
    return found


def draw(query: StreamingQuery, rows: list[Any], picture: str) -> Figure:
    """Draw what the stream has counted, and its backlog after each of the last 100 batches."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2)
    for topic in sorted({row.topic for row in rows}):
        of_topic = [row for row in rows if row.topic == topic]
        above.plot(
            [row.minute for row in of_topic], [row["count"] for row in of_topic], label=topic
        )
    above.set_ylabel("messages a minute")
    for broker, points in sorted(backlogs(query).items()):
        below.plot(range(len(points)), [left for _, left in points], marker="o", label=broker)
    below.set(xlabel="batch", ylabel="messages behind")
    for axes in (above, below):
        if axes.lines:
            axes.legend()
    figure.savefig(picture)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="store folder, comma list or glob")
    parser.add_argument("picture", help="file to draw: *.svg or *.png")
    given = parser.parse_args()
    spark = session()
    query = traffic(spark, given.path)
    while not query.awaitTermination(DRAWN_EVERY_S):
        draw(query, spark.table("traffic").orderBy("minute").collect(), given.picture)


if __name__ == "__main__":
    main()
