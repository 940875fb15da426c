"""An archive and the live store of its broker as one table in Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.bulk.archive import Archiver
from tests.interop.brokers import make_broker
from tests.kit.waiting import until
from tests.spark.broker_topics import make_topic, send
from tests.spark.conftest import BROKER_CONF
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archive_and_live_store_are_read_as_one_in_batch_and_stream(
    spark: "SparkSession", tmp_path: Path
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 16)
    store.add(
        Message(topic="Orders", queue_id=i % 3, body=b"%d" % i * 50, store_ms=i)
        for i in range(1200)
    )
    archive = tmp_path / "archive" / "broker-a"
    assert len(list(Archiver(str(store.root), str(archive)).run())) >= 3
    for path in sorted((store.root / "commitlog").iterdir())[:2]:
        path.unlink()
    both = f"{archive},{store.root}"
    messages = spark.read.format("pocketmq").option("columns", "queueId,queueOffset").load(both)
    assert messages.count() == 1200
    assert messages.where("queueId = 1 AND queueOffset < 10").count() == 10

    reader = spark.readStream.format("pocketmq").option("startingOffsets", "earliest")
    out = str(tmp_path / "out")
    query = (
        reader.option("columns", "queueId,queueOffset")
        .load(both)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()
    assert spark.read.parquet(out).distinct().count() == 1200


def test_a_broker_deletes_only_what_is_archived_and_no_row_is_missed(
    spark: "SparkSession", tmp_path: Path
) -> None:
    broker = make_broker(
        "pocketmq",
        tmp_path / "broker-a",
        config=BROKER_CONF
        | {
            "mappedFileSizeCommitLog": 1 << 16,
            "waitForArchive": True,
            "fileReservedTime": 0,
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": 100,
        },
    )
    broker.start()
    try:
        topic = make_topic(broker, 3)
        send(broker, topic, 700)
        log, archive = broker.store / "commitlog", tmp_path / "archive" / "broker-a"

        def first() -> int:
            return min(int(path.name) for path in log.iterdir())

        assert first() == 0
        end = len(list(Archiver(str(broker.store), str(archive)).run())) << 16
        assert end
        until(lambda: first() == end, "what is archived deleted")
        send(broker, topic, 700, first=700)
        assert len(list(log.iterdir())) > 1
        messages = (
            spark.read.format("pocketmq")
            .options(subscribe=topic, columns="queueId,queueOffset")
            .load(f"{archive},{broker.store}")
        )
        assert messages.distinct().count() == messages.count() == 1400
        # It deletes ten times a second, and these files are as old as the others were.
        assert first() == end
    finally:
        broker.kill()
