"""write to topics: columns, queues, batches, failures, delivery."""

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from pocketmq.spark.write.rows import check_schema, outgoing
from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, send, wait_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: "DataFrame", broker: RunningBroker, **options: str) -> None:
    writer = frame.write.format("pocketmq").mode("append")
    writer.options(**({"nameServer": broker.namesrv} | options)).save()


def read(spark: "SparkSession", broker: RunningBroker, topic: str) -> list[Any]:
    options = {"nameServer": broker.namesrv, "subscribe": topic, "columns": "all"}
    frame = spark.read.format("pocketmq").options(**options).load()
    return frame.orderBy("queueId", "queueOffset").collect()


def test_columns_become_the_parts_of_messages(spark: "SparkSession", broker: RunningBroker) -> None:
    topic = make_topic(broker, 2)
    schema = StructType(
        [
            StructField("body", BinaryType()),
            StructField("tags", StringType()),
            StructField("keys", ArrayType(StringType())),
            StructField("properties", MapType(StringType(), StringType())),
            StructField("flag", IntegerType()),
            StructField("queueId", IntegerType()),
        ]
    )
    rows = [
        (b"\x00\xff", "t", ["k1", "k2"], {"p": "é", "q": None}, 7, 1),
        (b"", None, None, None, None, 0),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    write(frame, broker, topic=topic, queueSelector="column")
    wait_readable(broker, topic, 2)
    second, first = read(spark, broker, topic)
    assert (bytes(first.body), first.tags, first["keys"], first.flag) == (
        b"\x00\xff",
        "t",
        "k1 k2",
        7,
    )
    assert first["properties"]["p"] == "é"
    assert first.uniqKey is not None
    assert (bytes(second.body), second.tags, second["keys"], second.queueId) == (b"", None, None, 0)


def test_every_row_is_sent_once_and_the_order_of_a_key_is_kept(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    topic = make_topic(broker, 4)
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "cast(id as string) as body", "concat(id div 1500, '-', id % 7) as shardingKey"
    )
    write(frame, broker, topic=topic, queueSelector="hash", batchBytes="4k")
    wait_readable(broker, topic, 3000)
    rows = read(spark, broker, topic)
    assert sorted(int(bytes(r.body)) for r in rows) == list(range(3000))
    assert len({r["properties"]["SPARK_ID"] for r in rows}) == 3000
    order: dict[str, list[int]] = {}
    places: dict[str, set[int]] = {}
    for row in rows:
        key = row["properties"]["__SHARDINGKEY"]
        order.setdefault(key, []).append(int(bytes(row.body)))
        places.setdefault(key, set()).add(row.queueId)
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert all(len(p) == 1 for p in places.values())


def test_rows_name_their_topics(spark: "SparkSession", broker: RunningBroker) -> None:
    one, two = make_topic(broker, 1), make_topic(broker, 1)
    frame = spark.createDataFrame(
        [("x", one), ("y", two), ("z", None)], "body string, topic string"
    )
    write(frame, broker, topic=two)
    wait_readable(broker, two, 2)
    wait_readable(broker, one, 1)
    assert [bytes(r.body) for r in read(spark, broker, one)] == [b"x"]
    assert sorted(bytes(r.body) for r in read(spark, broker, two)) == [b"y", b"z"]


def test_delayed_rows_wait_in_the_schedule(spark: "SparkSession", broker: RunningBroker) -> None:
    topic = make_topic(broker, 1)
    frame = spark.createDataFrame([("now", None), ("later", 18)], "body string, delayLevel int")
    write(frame, broker, topic=topic)
    wait_readable(broker, topic, 1)
    assert [bytes(r.body) for r in read(spark, broker, topic)] == [b"now"]
    options = {"nameServer": broker.namesrv, "subscribe": "SCHEDULE_TOPIC_XXXX"}
    waiting = spark.read.format("pocketmq").options(**options).load()
    assert waiting.where(f"properties['REAL_TOPIC'] = '{topic}'").count() == 1


def test_a_failed_task_says_how_many_messages_are_out(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    """A failed task leaves a clear count of what was sent."""
    topic = make_topic(broker, 1)
    frame = spark.createDataFrame(
        [(b"x" * 100,)] * 40 + [(b"x" * (5 << 20),)], "body binary"
    ).coalesce(1)
    with pytest.raises(
        Exception, match=r"40 messages of this task were sent and acknowledged, 1 were"
    ):
        write(frame, broker, topic=topic, batchBytes="2k")
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        (queue,) = client.queues(topic, Perm.READ)
    wait_readable(broker, topic, 40)
    assert len(read(spark, broker, topic)) == 40
    assert queue.queue_id == 0


def test_a_failed_write_shows_nothing_with_transactions(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    topic = make_topic(broker, 1)
    good = spark.range(20).selectExpr("cast(id as string) as body").coalesce(1)
    write(good, broker, topic=topic, delivery="transaction", group="SparkTx")
    wait_readable(broker, topic, 20)
    bad = good.selectExpr("if(body = '15', null, body) as body")
    with pytest.raises(Exception, match="a row has no body"):
        write(bad, broker, topic=topic, delivery="transaction", group="SparkTx")
    rows = read(spark, broker, topic)
    assert sorted(int(bytes(r.body)) for r in rows) == list(range(20))


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"topic": "T"}, "body int", "column 'body' must be string or binary, not int"),
        ({"topic": "T"}, "tags string", "column 'body' is missing"),
        ({"topic": "T"}, "body string, weight double", "column 'weight' cannot be written"),
        ({"topic": "T"}, "key string, value string", "What Kafka's sink calls key is keys"),
        ({}, "body string", "give option topic, or a column 'topic'"),
        (
            {"topic": "NoSuchTopic", "delivery": "ledger"},
            "body string",
            "creates none.*topic create NoSuchTopic",
        ),
        ({"topic": "T", "queueSelector": "column"}, "body string", "needs a column 'queueId'"),
        (
            {"topic": "T", "startingOffsets": "earliest"},
            "body string",
            "cannot be used for writing",
        ),
        ({"topic": "T", "delivery": "transaction"}, "body string", "needs option group"),
        ({"topic": "T", "delivery": "twice"}, "body string", "atleastonce, ledger, transaction"),
    ],
)
def test_a_mistake_is_reported_before_a_row_is_sent(
    options: dict[str, str],
    columns: str,
    message: str,
    spark: "SparkSession",
    broker: RunningBroker,
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.createDataFrame([], columns), broker, **options)


def test_topics_cannot_be_overwritten(spark: "SparkSession", broker: RunningBroker) -> None:
    frame = spark.createDataFrame([("x",)], "body string")
    writer = frame.write.format("pocketmq").mode("overwrite")
    with pytest.raises(Exception, match=r'mode\("append"\)'):
        writer.options(nameServer=broker.namesrv, topic="T").save()


# ---------------------------------------------------------------- rows, without a broker


def test_values_that_no_message_can_have_are_refused() -> None:
    with pytest.raises(IllegalArgument, match="no body"):
        outgoing({"body": None}, "T")
    with pytest.raises(IllegalArgument, match="no topic"):
        outgoing({"body": "x"}, "")
    for properties in ({"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}, {"a": ""}):
        with pytest.raises(IllegalArgument, match="separate properties"):
            outgoing({"body": "x", "properties": properties}, "T")


def test_timed_and_delayed_rows_are_sent_alone() -> None:
    timed = outgoing({"body": "x", "deliverTimestamp": 1_800_000_000_000}, "T")
    assert timed.single
    assert "TIMER_DELIVER_MS\x011800000000000\x02" in timed.properties
    assert not outgoing({"body": "x", "delayLevel": 0}, "T").single
    assert outgoing({"body": "x", "delayLevel": 3}, "T").properties == "DELAY\x013\x02"


def test_the_schema_is_checked_by_type() -> None:
    with pytest.raises(IllegalArgument, match="'keys' must be string or array"):
        check_schema(
            StructType([StructField("body", StringType()), StructField("keys", DoubleType())]),
            "T",
            "",
        )


def test_the_first_row_makes_a_topic_that_does_not_exist(broker: RunningBroker) -> None:
    topic = f"Made{time.time_ns()}"
    with BrokerClient(BrokerAccess(broker.namesrv)) as client:
        assert client.queues(topic, Perm.WRITE) == []
        assert {q.queue_id for q in client.writable(topic)} == {0, 1, 2, 3}
    send(broker, topic, 5)
    wait_readable(broker, topic, 5)
