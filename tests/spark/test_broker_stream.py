"""readStream over live brokers, group offsets, and streams from topic to topic."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from pocketmq.bulk.errors import DataLoss
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.brokers.stream import make_broker_stream
from pocketmq.spark.columns import projection_of, schema_of
from pocketmq.spark.given_options import parse_options
from pocketmq.spark.progress import commit_progress
from pocketmq.spark.source import PocketMQDataSource
from pocketmq.spark.stream import HAS_LIMITS, OffsetStream
from tests.interop.brokers import RunningBroker, make_broker
from tests.kit.waiting import until
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.spark.conftest import BROKER_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def source(spark: "SparkSession", broker: RunningBroker, topic: str, **options: str) -> Any:
    given = {"nameServer": broker.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("pocketmq").options(**(given | options)).load()


def drain(frame: Any, checkpoint: Path, out: Path, name: str = "") -> Any:
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    if name:
        writer = writer.queryName(name)
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(out))
    query.awaitTermination()
    return query


def offsets_of(broker: RunningBroker, topic: str, group: str) -> list[int | None]:
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        return [client.group_offset(q, group) for q in client.queues(topic, Perm.READ)]


def test_a_stream_continues_its_checkpoint_with_new_queues(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """New queues picked up."""
    topic = make_topic(broker, 2)
    send(broker, topic, 100)
    wait_readable(broker, topic, 100)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    first = drain(source(spark, broker, topic, maxOffsetsPerTrigger="60"), checkpoint, out)
    if HAS_LIMITS:
        reported = json.loads(first.recentProgress[0]["sources"][0]["latestOffset"])
        (behind,) = reported["behind"].values()
        assert behind["messages"] == 40
        assert 0 < behind["seconds"] < 3600
    make_topic(broker, 4, topic)
    send(broker, topic, 60, first=100)
    wait_readable(broker, topic, 160)
    drain(source(spark, broker, topic), checkpoint, out)
    rows = spark.read.parquet(str(out)).collect()
    assert sorted(int(bytes(r.body)) for r in rows) == list(range(160))
    assert {r.queueId for r in rows} == {0, 1, 2, 3}


@contextmanager
def new_topic_without_its_oldest(broker: RunningBroker) -> Iterator[tuple[Any, Any, Any]]:
    """A function that makes readers; where a query began, before the topic; where it had planned to end."""
    old = make_topic(broker, 1)
    given = {"nameServer": broker.namesrv, "subscribePattern": f"{old}.*"}
    with ExitStack() as stack:

        def reader(**options: str) -> OffsetStream:
            projection = projection_of(schema_of("queueOffset"), "")
            made = make_broker_stream(parse_options(given | options), projection, 1)
            stack.callback(made.stop)
            return made

        start = reader().initialOffset()
        new = make_topic(broker, 1, f"{old}New")
        send(broker, new, 300)
        wait_readable(broker, new, 300)
        planned = reader().after(start, 0, 0)
        broker.stop()
        sorted((broker.store / "commitlog").iterdir())[0].unlink()
        broker.start()
        yield reader, start, planned


def test_a_new_topic_trimmed_by_retention_is_reported(tmp_path: Path) -> None:
    """Made after the query's start: no offset of the stream names it, so only its beginning tells."""
    small = BROKER_CONF | {"mappedFileSizeCommitLog": 1 << 14}
    broker = make_broker("pocketmq", tmp_path, config=small)
    broker.start()
    with new_topic_without_its_oldest(broker) as (reader, start, planned):
        lost = r"New, broker .*, queue 0: offset 0 is wanted, but the queue begins at"
        with pytest.raises(DataLoss, match=lost):
            reader().after(start, 0, 0)
        # Planned before, and run again after a restart.
        with pytest.raises(DataLoss, match=lost):
            reader().partitions(start, planned)
        with_warning = reader(failOnDataLoss="false")
        end = with_warning.after(start, 0, 0)
        parts = with_warning.partitions(start, end)
        rows = sum(batch.num_rows for part in parts for batch in with_warning.read(part))
        assert 0 < rows < 300
    broker.kill()


def test_progress_is_committed_with_the_last_batch(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """Offsets are committed so that consoles show progress."""
    topic = make_topic(broker, 2)
    send(broker, topic, 40)
    wait_readable(broker, topic, 40)
    listener = commit_progress(spark, broker.namesrv, "SparkProgress", query_name="shown")
    try:
        drain(source(spark, broker, topic), tmp_path / "checkpoint", tmp_path / "out", "shown")
        until(
            lambda: offsets_of(broker, topic, "SparkProgress") == [20, 20],
            "the group's offsets at the end of both queues",
        )
    finally:
        spark.streams.removeListener(listener)


def test_the_source_commits_what_spark_has_finished(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    topic = make_topic(broker, 2)
    send(broker, topic, 40)
    wait_readable(broker, topic, 40)
    options = {"group": "SparkSource", "commitOffsets": "source", "maxOffsetsPerTrigger": "20"}
    frame = source(spark, broker, topic, **options)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start(out)
    try:
        # One batch late: the first batch is committed when the second has begun.
        until(
            lambda: min(o or 0 for o in offsets_of(broker, topic, "SparkSource")) >= 10,
            "the first batch's end as the group's offsets",
        )
    finally:
        query.stop()


def test_a_stream_from_topic_to_topic(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """Each row is sent once when nothing fails; ids name query, batch, partition and row."""
    one, two = make_topic(broker, 2), make_topic(broker, 3)
    send(broker, one, 80)
    wait_readable(broker, one, 80)
    # Before 4.2 a run of what is available is one batch, which a limit would cut off.
    limits = {"maxOffsetsPerTrigger": "50"} if HAS_LIMITS else {}
    frame = source(spark, broker, one, **limits).selectExpr(
        "concat('seen ', cast(body as string)) as body", "tags", "keys", "tags as shardingKey"
    )
    query = (
        frame.writeStream.format("pocketmq")
        .options(nameServer=broker.namesrv, topic=two, queueSelector="hash", delivery="ledger")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wait_readable(broker, two, 80)
    options = {"nameServer": broker.namesrv, "subscribe": two, "columns": "all"}
    rows = spark.read.format("pocketmq").options(**options).load().collect()
    assert sorted(bytes(r.body) for r in rows) == sorted(b"seen %d" % i for i in range(80))
    ids = [r["properties"]["SPARK_ID"] for r in rows]
    assert len(set(ids)) == 80
    assert {i.split("/")[0] for i in ids} == {str(query.id)}
    # One sharding key, one queue.
    queues: dict[str, set[int]] = {}
    for row in rows:
        queues.setdefault(row.tags, set()).add(row.queueId)
    assert all(len(q) == 1 for q in queues.values())


def test_with_a_ledger_a_whole_batch_is_not_sent_again(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """A query that dies between sending and its commit file repeats the batch."""
    topic = make_topic(broker, 1)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        frame = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=10, numPartitions=2, startTimestamp=0, advanceMillisPerBatch=1000
        )
        query = (
            frame.load()
            .selectExpr("cast(value as string) as body")
            .writeStream.format("pocketmq")
            .options(nameServer=broker.namesrv, topic=topic, delivery="ledger")
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            until(lambda: _batches(checkpoint) >= 2, "two batches done")
        finally:
            query.stop()

    run()
    newest = max((checkpoint / "commits").iterdir(), key=_number)
    done = _number(newest)
    # The crash: the batch's messages are out, its commit file is not there.
    for path in (checkpoint / "commits").glob(f"*{newest.name}*"):
        path.unlink()
    for path in (checkpoint / "offsets").iterdir():
        if _number(path) > done:
            path.unlink()
    run()
    options = {"nameServer": broker.namesrv, "subscribe": topic, "columns": "properties,body"}
    rows = spark.read.format("pocketmq").options(**options).load().collect()
    ids = [r["properties"]["SPARK_ID"] for r in rows]
    assert len(ids) == len(set(ids))
    assert len({bytes(r.body) for r in rows}) == len(rows)


# How a query of 400 rows is cut: at least so many tasks, and the partitions of a shuffle.
_CUTS = {"the same cut": (4, 0), "fewer tasks": (1, 0), "more tasks": (7, 0), "a shuffle": (1, 3)}


def _copy(frame: Any, cut: str, sink: dict[str, str], *, fails: bool = False) -> None:
    """Write what a stream has now; with `fails`, its last partition's first row cannot be written."""
    if shuffled := _CUTS[cut][1]:
        frame = frame.repartition(shuffled)
    body = f"if(spark_partition_id() = 3 and {fails}, raise_error('spoilt'), cast(body as string))"
    writer = frame.selectExpr(f"{body} as body").writeStream.format("pocketmq").options(**sink)
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("kind", "cut"), [*(("brokers", cut) for cut in _CUTS), ("files", "fewer tasks")]
)
def test_a_ledger_loses_no_row_however_a_restart_cuts_the_batch(
    kind: str, cut: str, spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """The number of a partition holds other rows then; only the same rows are not sent again."""
    one, two = make_topic(broker, 4), make_topic(broker, 2)
    send(broker, one, 400)
    wait_readable(broker, one, 400)
    place = {"nameServer": broker.namesrv} if kind == "brokers" else {"path": str(broker.store)}
    given = place | {"subscribe": one, "startingOffsets": "earliest"}
    sink = {"nameServer": broker.namesrv, "topic": two, "delivery": "ledger"}
    sink["checkpointLocation"] = str(tmp_path / "checkpoint")

    def frame(cut: str) -> Any:
        options = given | {"minPartitions": str(_CUTS[cut][0])}
        return spark.readStream.format("pocketmq").options(**options).load()

    with pytest.raises(StreamingQueryException, match="spoilt"):
        _copy(frame("the same cut"), "the same cut", sink, fails=True)
    first = _written(spark, broker, two)
    assert len(first) >= 200, "two of four tasks had ended when the last one began"
    _copy(frame(cut), cut, sink)
    rows = _written(spark, broker, two)
    assert {body for _, body in rows} == {b"%d" % i for i in range(400)}
    # An id is of one row, so one that drops ids it knows has every row.
    assert len(set(rows)) == len({spark_id for spark_id, _ in rows})
    if cut == "the same cut":
        assert len(rows) <= 400 + len(first) - 200, "a task that had ended sent its rows again"


def _written(spark: "SparkSession", broker: RunningBroker, topic: str) -> list[tuple[str, bytes]]:
    options = {"nameServer": broker.namesrv, "subscribe": topic, "columns": "properties,body"}
    rows = spark.read.format("pocketmq").options(**options).load().collect()
    return [(r["properties"]["SPARK_ID"], bytes(r.body)) for r in rows]


def _number(path: Path) -> int:
    digits = path.name.lstrip(".").split(".")[0]
    return int(digits) if digits.isdecimal() else -1


def _batches(checkpoint: Path) -> int:
    folder = checkpoint / "commits"
    return len([p for p in folder.iterdir() if p.name.isdecimal()]) if folder.is_dir() else 0


def test_commit_offsets_needs_a_group(broker: RunningBroker) -> None:
    source = PocketMQDataSource(
        {"nameServer": broker.namesrv, "subscribe": "T", "commitOffsets": "source"}
    )
    with pytest.raises(IllegalArgument, match="commitOffsets needs option group"):
        source.streamReader(source.schema()).initialOffset()
