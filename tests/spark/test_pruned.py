"""pocketmq.spark.read: frames of the columns that a query uses."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.store.bulk_stores import Message, WrittenStore

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark import read
from pocketmq.spark.pruned import Messages, columns_used

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def messages(spark: "SparkSession", tmp_path: Path) -> Messages:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(
        Message(topic="Orders", queue_id=i % 2, body=b"x" * i, properties=b"TAGS\x01t%d\x02" % (i % 5))
        for i in range(50)
    )  # fmt: skip
    return read(spark, str(store.root), subscribe="Orders")


def leaves(frame: "DataFrame") -> set[str]:
    """Columns of the frames that a plan is made of."""
    found = frame._jdf.queryExecution().analyzed().collectLeaves()
    outputs = [found.apply(n).output() for n in range(found.size())]
    return {out.apply(n).name() for out in outputs for n in range(out.size())}


def test_a_query_decodes_what_it_names(spark: "SparkSession", messages: Messages) -> None:
    chosen = messages.where("tags = 't1'").apply(
        lambda frame: frame.selectExpr("queueOffset", "length(body) AS size")
    )
    assert leaves(chosen) == {"tags", "queueOffset", "body"}
    assert [row[1] for row in chosen.orderBy("size").collect()] == list(range(1, 50, 5))

    grouped = messages.apply(lambda frame: frame.groupBy("tags").count())
    assert leaves(grouped) == {"tags"}
    assert {row[0]: row[1] for row in grouped.collect()} == {f"t{i}": 10 for i in range(5)}

    other = spark.createDataFrame([("t1", "one")], "tags string, name string")
    joined = messages.sql(
        "SELECT name, sum(m.queueId) FROM {messages} m JOIN {names} USING (tags) GROUP BY name",
        names=other,
    )
    assert leaves(joined) == {"tags", "queueId", "name"}
    assert [tuple(row) for row in joined.collect()] == [("one", 5)]
    assert messages.count() == 50


def test_a_query_that_shows_everything_has_everything(messages: Messages) -> None:
    assert len(columns_used(messages.apply(lambda frame: frame))) == 23


def test_columns_are_not_named_beside_it(spark: "SparkSession") -> None:
    with pytest.raises(IllegalArgument, match="leave out option columns"):
        read(spark, "/nowhere", Columns="body")
