"""Option bodySchema: fields of bodies as columns of the source."""

import datetime
from typing import TYPE_CHECKING

import pytest

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.spark import read
from pocketmq.spark.source import PocketMQDataSource
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = WrittenStore(tmp_path_factory.mktemp("broker-a") / "store")
    store.add(
        Message(
            topic="Orders",
            body=b'{"id":%d,"at":"2026-01-02T03:04:05Z","tags":["x"],"line":{"sku":"s%d"}}' % (i, i)
            if i % 10
            else b"not JSON",
        )
        for i in range(100)
    )
    return str(store.root)


def test_fields_of_bodies_are_columns(spark: "SparkSession", root: str) -> None:
    source = spark.read.format("pocketmq").option("subscribe", "Orders")
    given = source.option(
        "bodySchema", "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, line STRUCT<sku: STRING>"
    )
    chosen = given.option("columns", "queueOffset,line,id,body_tags,at,_body_error").load(root)
    assert chosen.columns == ["queueOffset", "line", "id", "body_tags", "at", "_body_error"]
    rows = {row.queueOffset: row for row in chosen.collect()}
    assert len(rows) == 100
    seven = rows[7]
    assert (seven.id, seven.line.sku, seven.body_tags, seven._body_error) == (7, "s7", ["x"], None)
    assert seven["at"] == datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert (rows[30].id, rows[30].line) == (None, None)
    assert rows[30]._body_error == "it is not an object of JSON"
    inferred = source.option("bodySchema", "infer").load(root)
    assert {*inferred.columns[-5:-1]} == {"id", "at", "body_tags", "line"}
    assert inferred.columns[-1] == "_body_error"
    assert inferred.selectExpr("sum(id)", "count(_body_error)").collect()[0][:] == (4500, 10)
    with pytest.raises(Exception, match="10 bodies do not fit bodySchema"):
        given.option("bodyErrors", "fail").option("columns", "id").load(root).count()


def test_only_wanted_fields_are_decoded(root: str) -> None:
    """Without Spark: a schema of some columns needs the body only if one is a field of it."""
    options = {"path": root, "bodySchema": "id BIGINT, line STRUCT<sku: STRING>"}
    for columns, decoded in (("queueOffset,id", ("queueOffset", "body")), ("tags", ("tags",))):
        source = PocketMQDataSource(options | {"columns": columns})
        reader = source.reader(source.schema())
        assert reader.projection.decoded == decoded
        (partition,) = reader.partitions()
        batches = list(reader.read(partition))
        assert batches[0].schema.names == columns.split(",")
        assert sum(batch.num_rows for batch in batches) == 100


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bodySchema": "id BIGIN"}, "did you mean 'BIGINT'"),
        ({"bodySchema": "id BIGINT", "columns": "kafka"}, "do not go together"),
        ({"bodySchema": "id BIGINT", "columns": "idd"}, "there is no column 'idd'"),
        ({"bodySchema": "id BIGINT", "bodyErrors": "drop"}, "bodyErrors"),
    ],
)
def test_a_wrong_option_is_refused(root: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(IllegalArgument, match=why):
        PocketMQDataSource({"path": root, **options}).schema()


def test_a_pruned_read_says_that_it_leaves_bodies_alone(spark: "SparkSession", root: str) -> None:
    with pytest.raises(IllegalArgument, match="does not look into bodies"):
        read(spark, root, bodySchema="id BIGINT")
