"""pocketmq.spark.read: frames of the columns that a query uses."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark import read
from pocketmq.spark.analysed import Analysed
from pocketmq.spark.pruned import PrunedMessages, _template
from pocketmq.spark.pushdown import Pushed
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def messages(spark: "SparkSession", tmp_path: Path) -> PrunedMessages:
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


def test_a_query_decodes_what_it_names(spark: "SparkSession", messages: PrunedMessages) -> None:
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


@pytest.mark.parametrize(
    ("query", "pushed"),
    [
        ("SELECT body FROM {messages} WHERE tags = 't1' AND queueOffset >= 5",
         Pushed(tags=frozenset({"t1"}), offset_low=5)),
        ("SELECT count(*) FROM (SELECT queueId, length(body) n FROM {messages}) WHERE queueId = 1 AND n > 3",
         Pushed(queueId=frozenset({1}))),
        ("SELECT body FROM {messages} WHERE storeTimestamp < timestamp_millis(7000)"
         " AND storeTimestamp > timestamp '1969-01-01'", Pushed(start_ms=-31535999999, end_ms=7000)),
        # The same messages again, without the condition or with another one.
        ("SELECT body FROM {messages} WHERE tags = 't1' AND queueId = (SELECT max(queueId) FROM {messages})",
         Pushed()),
        ("SELECT a.body FROM {messages} a JOIN {messages} b USING (queueId, queueOffset)"
         " WHERE a.tags = 't1' AND b.tags = 't2'", Pushed()),
        # What is no filter of rows, or not yet told.
        ("SELECT body FROM (SELECT * FROM {messages} LIMIT 3) WHERE tags = 't1'", Pushed()),
        ("SELECT body FROM {messages} WHERE storeTimestamp < current_timestamp()", Pushed()),
        ("SELECT body FROM {messages} WHERE tags = 't1' OR queueId = 1", Pushed()),
        ("SELECT body FROM {messages} WHERE upper(tags) = 'T1' AND NOT (queueId = 1)", Pushed()),
    ],
)  # fmt: skip
def test_what_the_index_answers(
    spark: "SparkSession", messages: PrunedMessages, query: str, pushed: Pushed
) -> None:
    template = _template(spark)
    assert Analysed(spark.sql(query, messages=template)).pushed == pushed


def test_parts_of_a_query_may_look_at_other_columns(messages: PrunedMessages) -> None:
    """What only a subquery or a common table names is decoded, too."""
    found = messages.sql(
        "WITH t AS (SELECT tags, queueId, queueOffset AS o FROM {messages} WHERE queueId = 0) "
        "SELECT count(*), max(o) FROM t WHERE tags IN (SELECT concat('t', flag + 2) FROM {messages})"
    )
    assert [tuple(row) for row in found.collect()] == [(5, 21)]


def test_a_query_that_shows_everything_has_everything(messages: PrunedMessages) -> None:
    assert len(Analysed(messages.apply(lambda frame: frame)).columns) == 23


def test_columns_are_not_named_beside_it(spark: "SparkSession") -> None:
    with pytest.raises(IllegalArgument, match="leave out option columns"):
        read(spark, "/nowhere", Columns="body")
