"""A batch, a stream with a restart, a write and a read of a broker, in a process of its own.

essentials_child.py classic|sc://... STORE NAMESRV TOPIC SCRATCH     results as JSON to SCRATCH/result.json

For what one process can have one of only: another PySpark version, or a session of a Spark Connect server.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

CONF = {
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


def classic() -> Any:
    from pocketmq.spark import session

    jvm = {"spark.driver.extraJavaOptions": os.environ["SHORT_LIVED_JVM"]}
    made = session("local[1]", conf=CONF | jvm)
    made.sparkContext.setLogLevel("OFF")
    return made


def connect(url: str) -> Any:
    from pyspark.sql import SparkSession

    from pocketmq.spark import setup

    return setup(SparkSession.builder.remote(url).getOrCreate())


def main(kind: str, store: str, namesrv: str, topic: str, scratch: str) -> None:
    spark = classic() if kind == "classic" else connect(kind)
    files = spark.read.format("pocketmq").option("columns", "all")
    rows = files.load(store).orderBy("queueId", "queueOffset").collect()
    tagged = files.load(store).where("tags = 'a' and queueId = 1").count()

    places: list[list[tuple[int, int]]] = []
    # The restart is not different in Connect, and each batch costs a second of CPU.
    for limit in ("15", "") if kind == "classic" else ("",):
        reader = spark.readStream.format("pocketmq").option("startingOffsets", "earliest")
        if limit:
            reader = reader.option("maxOffsetsPerTrigger", limit)
        writer = reader.load(store).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{scratch}/checkpoint")
        writer.trigger(availableNow=True).start(f"{scratch}/out").awaitTermination()
        seen = pq.read_table(f"{scratch}/out", columns=["queueId", "queueOffset"])
        places.append(sorted((r["queueId"], r["queueOffset"]) for r in seen.to_pylist()))

    site = {"nameServer": namesrv, "topic": topic}
    sent = spark.range(20).selectExpr("cast(id as string) as body", "'t' as tags")
    sent.write.format("pocketmq").mode("append").options(**site).save()
    pulled = spark.read.format("pocketmq").options(**site).load().collect()
    try:
        spark.read.format("pocketmq").option("startingOffset", "x").load(store).count()
        mistake = "none"
    except Exception as error:  # noqa: BLE001 - the class depends on the version and the kind of session
        mistake = str(error)
    result = {
        "version": spark.version,
        "session": type(spark).__module__,
        "rows": [[r.queueId, r.queueOffset, r.tags, bytes(r.body).decode()] for r in rows],
        "properties": [r["properties"] for r in rows],
        "tagged": tagged,
        "places": places,
        "pulled": sorted(int(bytes(r.body)) for r in pulled),
        "mistake": mistake,
    }
    Path(scratch, "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
