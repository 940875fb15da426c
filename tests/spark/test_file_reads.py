"""Batch reads of store folders: golden rows, options, push-down, mistakes before tasks start."""

import hashlib
import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSourceReader

from pocketmq import bulk
from pocketmq.spark import read
from pocketmq.spark.file_reader import told
from pocketmq.spark.source import PocketMQDataSource
from tests.store.bulk_stores import (
    GOLDEN_NAMES,
    Message,
    WrittenStore,
    manifest,
    table_rows,
    unpack,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from tests.spark.file_frames import numbers, planned, read_by

Load = Callable[..., "DataFrame"]
Place = tuple[str, int, int]


def test_spark_reads_the_recorded_stores_as_their_manifests(load: Load, tmp_path: Path) -> None:
    """All in one table of whole rows, every type through Spark and back. Where a store is damaged, or its log
    is read without an index, the rows are those of the decoder, which other tests judge by the manifests."""
    roots = {str(unpack(name, tmp_path / name)): name for name in GOLDEN_NAMES}
    frame = load(
        list(roots), columns="all", includeSystemTopics="true", failOnDataLoss="false",
        brokerName=json.dumps(roots),
    )  # fmt: skip
    found: dict[str, dict[Place, dict[str, Any]]] = {name: {} for name in GOLDEN_NAMES}
    for one in frame.collect():
        row = one.asDict() | {"body": bytes(one.body)}
        found[one.brokerName][one.topic, one.queueId, one.queueOffset] = row
    for root, name in roots.items():
        table = bulk.scan(
            root, columns="all", system_topics=True, broker_name=name, fail_on_data_loss=False
        ).read_all()
        wanted = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in table_rows(table)}
        for judge in wanted.values():
            for time in ("bornTimestamp", "storeTimestamp"):
                judge[time] = judge[time].astimezone().replace(tzinfo=None)
        assert found[name] == wanted, name
        served = {
            (m["topic"], m["queueId"], m["queueOffset"]): m["bodySha256"]
            for m in manifest(name)["messages"]
            if "inner" not in m
        }
        if "clean" in name:
            assert served.keys() <= wanted.keys(), name
        for place in served.keys() & wanted.keys():
            assert hashlib.sha256(found[name][place]["body"]).hexdigest() == served[place]


def test_the_standard_columns(load: Load, written: WrittenStore) -> None:
    frame = load(written.root)
    assert frame.columns == [
        "topic", "brokerName", "queueId", "queueOffset", "body", "tags", "keys", "properties",
        "flag", "bornTimestamp", "storeTimestamp",
    ]  # fmt: skip
    row = frame.where("queueOffset = 7 and queueId = 1 and topic = 'T'").collect()[0]
    assert (row.brokerName, bytes(row.body), row.tags) == (written.root.parent.name, b"44", "b")
    assert row["properties"] == {"TAGS": "b", "KEYS": "k44 x"}


def test_only_the_columns_of_the_schema_are_decoded(
    spark: "SparkSession", written: WrittenStore
) -> None:
    reader = spark.read.format("pocketmq").schema("tags string, queueOffset bigint")
    frame = reader.load(str(written.root))
    assert frame.columns == ["tags", "queueOffset"]
    assert frame.count() == 600
    assert {r.tags for r in frame.collect()} == set("abcdef")
    with pytest.raises(Exception, match=r"queueOffset' is bigint, not string"):
        spark.read.format("pocketmq").schema("queueOffset string").load(str(written.root)).count()


def test_the_columns_of_a_kafka_source(load: Load, written: WrittenStore) -> None:
    frame = load(written.root, columns="kafka", subscribe="T")
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    row = frame.where("partition = 0 and offset = 1").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"k6 x", b"6", "T")
    assert row.timestampType == 1
    assert {h.key: bytes(h.value) for h in row.headers} == {"TAGS": b"b", "KEYS": b"k6 x"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"subscribe": "T"}, lambda i: i % 2 == 0),
        ({"subscribePattern": "[U-Z]"}, lambda i: i % 2 == 1),
        ({"subExpression": "b || f"}, lambda i: i // 6 % 6 in (1, 5)),
        ({"keys": "k17,k18"}, lambda i: i in (17, 18)),
        ({"startingTimestamp": "1700000400000"}, lambda i: i >= 400),
        (
            {"startingTimestamp": "1700000100500", "endingTimestamp": "1700000110000"},
            lambda i: 101 <= i < 110,
        ),
        ({"minPartitions": "7", "maxPartitionBytes": "9k"}, lambda i: True),
        ({"subscribe": "T,U", "batchBytes": "700"}, lambda i: True),
    ],
)
def test_options_choose_rows(
    options: dict[str, str], wanted: Callable[[int], bool], written: WrittenStore
) -> None:
    """The reader that Spark calls, without Spark."""
    reader, partitions = planned({"path": str(written.root), "columns": "body", **options})
    assert read_by(reader, partitions) == [i for i in range(600) if wanted(i)]


@pytest.mark.parametrize(
    ("options", "longer"),
    [
        ({"columns": "body"}, False),
        ({"columns": "tags"}, True),
        ({"columns": "body", "keys": "k17"}, True),
        ({"columns": "body", "keys": "k17", "maxPartitionBytes": "9k"}, False),
    ],
)
def test_what_copies_few_bodies_makes_longer_tasks(
    options: dict[str, str], longer: bool, written: WrittenStore
) -> None:
    """Each task costs a tenth of a second of CPU, as much as a key in a hundred thousand messages."""
    source = PocketMQDataSource({"path": str(written.root), **options})
    source.parallelism = 2
    reader = source.reader(source.schema())
    assert (reader._sizes(reader.filters()).row_bytes > 0) == longer


def test_offsets_choose_rows_of_each_queue(load: Load, written: WrittenStore) -> None:
    broker = written.root.parent.name
    frame = load(
        written.root,
        assign={"T": {broker: [0, 1]}},
        startingOffsets={"T": {broker: {"0": 10, "1": -1}}},
        endingOffsets={"T": {broker: {"0": 12}}},
    )
    rows = [(r.queueId, r.queueOffset) for r in frame.collect()]
    assert sorted(rows) == [(0, 10), (0, 11)]
    by_time = load(
        written.root,
        assign={"T": {broker: [0, 1]}},
        startingOffsetsByTimestamp={
            "T": {broker: {"0": 1_700_000_590_000, "1": 1_700_000_599_000}}
        },
        startingOffsetsByTimestampStrategy="latest",
    )
    assert sorted((r.queueId, r.queueOffset) for r in by_time.collect()) == [(0, 99)]


def test_many_small_tasks_give_the_rows_of_one(load: Load, written: WrittenStore) -> None:
    frame = load(written.root, minPartitions="9")
    assert frame.rdd.getNumPartitions() >= 9
    assert numbers(frame) == list(range(600))


CONDITIONS = (
    "tags = 'c'",
    "tags in ('a', 'nothing') and topic = 'T'",
    "tags is null",
    "tags is not null and queueId = 2",
    "queueOffset between 5 and 9",
    "queueOffset = 5 and queueId in (0, 1)",
    "storeTimestamp >= timestamp'2023-11-14 22:20:00.0005'",
    "storeTimestamp < timestamp'2023-11-14 22:13:25' and topic = 'U'",
    "storeTimestamp = timestamp'2023-11-14 22:13:25'",
    "storeTimestamp = timestamp'2023-11-14 22:13:25.0001'",
    "not (tags = 'c')",
    "topic = 'T' or queueId = 1",
    "brokerName = 'elsewhere'",
    "tags = 'c' and tags = 'd'",
    "keys = 'k5 x'",
    "keys in ('k5 x', 'k17')",
    "queueOffset < 3 and 'U' = topic",
)


@pytest.fixture(scope="module")
def judged(spark: "SparkSession", written: WrittenStore) -> dict[str, list[int]]:
    """By condition, what Spark's own filter leaves of a table of the same rows; found by one query."""
    frame = spark.read.format("pocketmq").load(str(written.root))
    table = spark.createDataFrame(frame.collect(), frame.schema)
    rows = table.selectExpr("body", *(f"({c}) AS c{n}" for n, c in enumerate(CONDITIONS))).collect()
    return {
        condition: sorted(int(bytes(r.body)) for r in rows if r[f"c{n}"])
        for n, condition in enumerate(CONDITIONS)
    }


def test_a_where_clause_gives_the_same_rows_with_push_down(
    judged: dict[str, list[int]], pushing: "SparkSession", load: Load, written: WrittenStore
) -> None:
    """Push-down may only take filters that it applies exactly (a filter that is taken leaves the plan)."""
    assert by_condition(lambda condition: load(written.root).where(condition)) == judged


def test_a_where_clause_of_read_gives_the_same_rows(
    judged: dict[str, list[int]], spark: "SparkSession", written: WrittenStore
) -> None:
    """Conditions of the index, beside those that Spark applies alone."""
    messages = read(spark, str(written.root))
    assert by_condition(lambda condition: messages.where(condition).select("body")) == judged


def by_condition(chosen: Callable[[str], "DataFrame"]) -> dict[str, list[int]]:
    """The bodies that each condition leaves; all in one job."""
    functions = pytest.importorskip("pyspark.sql.functions")
    frames = [
        chosen(condition).select(functions.lit(n).alias("n"), "body")
        for n, condition in enumerate(CONDITIONS)
    ]
    found: dict[str, list[int]] = {condition: [] for condition in CONDITIONS}
    for n, body in reduce(lambda one, other: one.unionAll(other), frames).collect():
        found[CONDITIONS[n]].append(int(bytes(body)))
    return {condition: sorted(bodies) for condition, bodies in found.items()}


def test_the_queries_of_one_frame_have_rows_of_their_own(
    spark: "SparkSession", load: Load, written: WrittenStore
) -> None:
    """Spark gives a frame's next query the rows of the filters that it pushed last, so none are pushed."""
    setting = "spark.sql.python.filterPushdown.enabled"
    # Another source may have it on.
    spark.conf.set(setting, "true")
    try:
        frame = load(written.root, columns="queueId")
        assert frame.where("queueId = 0").count() == 200
        assert frame.count() == 600
        both = frame.where("queueId = 0").unionAll(frame.where("queueId = 1"))
        assert both.distinct().count() == 2
    finally:
        spark.conf.unset(setting)


def test_pushed_filters_leave_the_plan(
    pushing: "SparkSession", load: Load, written: WrittenStore, capsys: pytest.CaptureFixture[str]
) -> None:

    if not hasattr(DataSourceReader, "pushFilters"):
        pytest.skip("this PySpark has no push-down for Python sources")
    frame = load(written.root, columns="tags,queueId").where("tags = 'c' and queueId < 2")
    frame.explain()
    plan = capsys.readouterr().out
    assert "queueId" in plan.split("Filter", 1)[1].splitlines()[0]
    assert "'c'" not in plan
    assert "= c" not in plan


def test_several_brokers_stores_are_one_table(load: Load, tmp_path: Path) -> None:
    """A glob of roots; the folder above `store` is the broker's name."""
    for name in ("broker-a", "broker-b"):
        store = WrittenStore(tmp_path / name / "store")
        store.add(Message(body=b"%d of %s" % (i, name.encode())) for i in range(5))
    rows = load(tmp_path / "*" / "store").groupBy("brokerName").count().collect()
    assert {r.brokerName: r["count"] for r in rows} == {"broker-a": 5, "broker-b": 5}
    both = load([str(tmp_path / "broker-a" / "store"), str(tmp_path / "broker-b" / "store")])
    assert both.count() == 10
    narrowed = load(tmp_path / "*" / "store").where("brokerName = 'broker-b' and queueOffset >= 3")
    assert narrowed.count() == 2


def test_a_group_begins_where_its_offsets_stand(load: Load, tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "b" / "store")
    store.add(Message(queue_id=i % 2, body=b"%d" % i) for i in range(20))
    config = store.root / "config"
    config.mkdir()
    # fastjson's dialect: keys that are numbers have no quotes.
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:8,1:9}}}')
    frame = load(store.root, startingOffsets="group", group="G")
    assert numbers(frame) == [16, 18, 19]
    with pytest.raises(Exception, match="no store has offsets of group 'H'; groups there: G"):
        load(store.root, startingOffsets="group", group="H").count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"columns": "topic,bodi"}, "no column 'bodi'"),
        ({"columns": "topic,topic"}, "named twice"),
        ({"subscribe": "Nowhere"}, "no topic 'Nowhere'.*the topics are T, U"),
        ({"maxOffsetsPerTrigger": "5"}, "cannot be used for a batch read"),
        ({"expressionType": "SQL92", "subExpression": "a > 1"}, "nameServer"),
        ({"startingTimestamp": "1800000000000"}, "startingOffsetsByTimestampStrategy"),
        ({"startingOffsets": {"T": {"absent": {"0": 5}}}}, "broker 'absent'.*Read are the brokers"),
        (
            {"startingOffsets": {"T": {"BROKER": {"90": 5}}}},
            "startingOffsets names queue 90 of topic 'T' on broker '.+', which does not exist or is not "
            "read. Its queues are 0",
        ),
        (
            {"endingOffsets": {"T": {"BROKER": {"90": 5}}}},
            "endingOffsets names queue 90 of topic 'T'",
        ),
        ({"startingOffsets": {"T": {"BROKER": {"0": 500}}}}, "queue ends at 100"),
        ({"endingOffsets": {"T": {"BROKER": {"0": 500}}}}, "queue ends at 100"),
        ({"nameServer": "127.0.0.1:1"}, "not both"),
    ],
)
def test_a_mistake_is_reported_by_the_plan(
    options: dict[str, Any], message: str, written: WrittenStore
) -> None:
    """The reader that Spark calls, without Spark."""
    given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    given = {k: v.replace("BROKER", written.root.parent.name) for k, v in given.items()}
    with pytest.raises(Exception, match=message):
        planned({"path": str(written.root), **given})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "topic,bodi"}, "no column 'bodi'"),
        ({"subscribe": "Nowhere"}, "no topic 'Nowhere'"),
    ],
    ids=["by the schema", "by the plan"],
)
def test_a_mistake_is_reported_before_a_task_starts(
    options: dict[str, str], message: str, load: Load, spark: "SparkSession", written: WrittenStore
) -> None:
    tracker = spark.sparkContext.statusTracker()
    group = f"mistake {message}"
    spark.sparkContext.setJobGroup(group, "")
    try:
        with pytest.raises(Exception, match=message):
            load(written.root, **options).collect()
        assert not tracker.getJobIdsForGroup(group)
    finally:
        spark.sparkContext.setJobGroup("", "")


def test_a_folder_that_is_no_store_is_an_error(load: Load, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="has no folder `commitlog`"):
        load(tmp_path).count()
    with pytest.raises(Exception, match="no folder matches the pattern"):
        load(tmp_path / "x*").count()


def test_a_plan_that_takes_long_says_how_far_it_is() -> None:
    lines: list[str] = []
    say = told(5, lines.append, iter([0.0, 0.1, 1.9, 2.0, 2.5, 4.1]).__next__)
    for _ in range(5):
        say()
    assert lines == ["planning: 3 of 5 stores\n", "planning: 5 of 5 stores\n"]


def test_nothing_to_read_named_is_an_error(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(Exception, match=r"load\(.* reads files, option nameServer"):
        spark.read.format("pocketmq").load().count()
