"""Options of format("pocketmq"): every bad value is an error that names the option and what is allowed."""

import os
import pickle
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pocketmq.bulk.moments import moment_ms
from pocketmq.bulk.offsets import LossRule, Positions, QueueKey, check_known
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.spark.columns import options_in
from pocketmq.spark.given_options import check_use, parse_options
from pocketmq.spark.options import (
    BATCH_ONLY,
    NOT_FOR_USERS,
    READ,
    STREAM,
    STREAM_ONLY,
    WRITE,
    WRITE_ONLY,
    Options,
    parse_size,
)
from pocketmq.spark.positions import starting_of, topics_of
from pocketmq.spark.source import PocketMQDataSource
from tests.store.bulk_stores import Message, WrittenStore
from tools import spark_tables

# (option, a bad value, what the error says is allowed)
BAD_VALUES = [
    ("subscribePattern", "a[", "regular expression"),
    ("assign", "T", '{"topic":{"broker":[0,1]}}'),
    ("assign", '{"T":[0]}', '{"topic":{"broker":[0,1]}}'),
    ("assign", '{"T":{"b":["0"]}}', '{"topic":{"broker":[0,1]}}'),
    ("assign", '{"T":{"b":[-1]}}', '{"topic":{"broker":[0,1]}}'),
    ("brokerName", "{x", "brokerName"),
    ("brokerName", '{"/a":1}', "roots to names"),
    ("startingOffsets", "soonest", "earliest, latest, group or JSON"),
    ("startingOffsets", "{", '{"topic":{"broker":{"queue":offset}}}'),
    ("startingOffsets", '{"T":{"b":{"0":-3}}}', "at least -2"),
    ("startingOffsets", '{"T":{"b":{"0":true}}}', "number"),
    ("startingOffsets", '{"T":{"b":{"x":1}}}', "queue 'x'"),
    ("startingOffsets", '{"T":{"b":[1]}}', "object of queues"),
    ("startingOffsets", '{"T":1}', "object of brokers"),
    ("startingOffsets", "group", "option group"),
    ("startingOffsets", "latest", "has no rows: use earliest"),
    ("endingOffsets", "earliest", "latest or JSON"),
    ("endingOffsets", '{"T":{"b":{"0":-2}}}', "at least -1"),
    ("startingTimestamp", "yesterday", "milliseconds since 1970"),
    ("endingTimestamp", "-1", "milliseconds since 1970"),
    ("startingTimestamp", "1700000000", "in milliseconds it is 1700000000000"),
    ("startingOffsetsByTimestamp", '{"T":{"b":{"0":-1}}}', "at least 0"),
    ("endingOffsetsByTimestamp", "7", "object"),
    ("startingOffsetsByTimestampStrategy", "guess", "error, latest"),
    ("failOnDataLoss", "maybe", "true or false"),
    ("maxOffsetsPerTrigger", "-1", "at least 0"),
    ("maxOffsetsPerTrigger", "many", "number"),
    ("minOffsetsPerTrigger", "x", "number"),
    ("maxTriggerDelay", "soon", "ms, s, m, h or d"),
    ("maxBytesPerTrigger", "1t", "k, m or g"),
    ("minPartitions", "-2", "at least 0"),
    ("maxPartitionBytes", "0", "at least 1"),
    ("batchBytes", "big", "k, m or g"),
    ("expressionType", "REGEX", "TAG, SQL92"),
    ("commitOffsets", "yes", "none, source, progress"),
    ("bodySchema", "id BIGIN", "did you mean 'BIGINT'"),
    ("bodyErrors", "drop", "column, fail"),
    ("decompress", "1", "true or false"),
    ("verifyCrc", "on", "true or false"),
    ("includeSystemTopics", "", "true or false"),
    ("pullBatchSize", "0", "at least 1"),
    ("pullTimeoutMs", "0", "at least 1"),
    ("retryTimeoutMs", "-1", "at least 0"),
    ("useTLS", "yes", "true or false"),
    ("delivery", "exactlyonce", "atleastonce, ledger, transaction"),
    ("queueSelector", "random", "roundrobin, hash, column"),
    ("paths", "/a", "JSON list"),
    ("conditions", "tags = 'a'", "use where()"),
    ("conditions", '{"tag":["a"]}', "use where()"),
    # What is given but empty is a variable of the job that was not set: it must not mean "everything".
    ("path", "", "is empty"),
    ("path", "/no/such/folder", "holds `commitlog`"),
    ("path", "https://host/store", "a web server cannot be listed"),
    ("path", "dbfs:/mnt/store", "/dbfs/"),
    ("path", "s3a://bucket/store", "s3://"),
    ("path", "hdfs://127.0.0.1:1/store", "libhdfs is needed: set HADOOP_HOME and CLASSPATH"),
    ("path", "nosuch://bucket/store", "its file system cannot be opened"),
    ("nameServer", "somewhere", "host:port;host:port"),
    ("subscribe", " , ", "names no topic"),
    ("subscribe", "Nowhere", "the topics are T"),
    ("topic", ",", "names no topic"),
    ("topic", "", "is empty"),
    ("subExpression", " || ", "TagA || TagB"),
    ("subExpression", "TagA & TagB", "joins tags by || only"),
    ("subExpression", "TagA || TagB | TagC", "'TagB | TagC' would be one tag"),
    ("subExpression", "TagA or TagB", "joins tags by || only"),
    ("keys", ",", "names no key"),
    ("columns", "topic,bodi", "the columns are topic"),
    ("columns", ",", "the columns are topic"),
    ("group", "", "is empty"),
    ("accessKey", "a", "give both or none"),
    ("secretKey", "s", "give both or none"),
    ("securityToken", "t", "needs accessKey and secretKey"),
    ("includeSystemTopics", "some", "true or false"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = WrittenStore(tmp_path_factory.mktemp("broker-a") / "store")
    store.add(Message(queue_id=i % 2) for i in range(10))
    return str(store.root)


def plan(name: str, value: str, root: str) -> None:
    """Everything that happens in the driver before the first task of a query, without Spark."""
    needs_brokers = name in ("accessKey", "secretKey", "securityToken", "nameServer")
    # No server listens there, and none is waited for.
    nobody = {"nameServer": "127.0.0.1:1", "retryTimeoutMs": "0"}
    where = nobody if needs_brokers else {"path": root}
    if name in WRITE_ONLY:
        where = nobody | {"topic": "T"}
    if name == "paths":
        where = {}
    source = PocketMQDataSource(where | {name: value})
    if name in WRITE_ONLY:
        source.writer(StructType([StructField("body", StringType())]), overwrite=False)
    elif name in STREAM_ONLY:
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        reader.partitions(start, start)
    else:
        source.reader(source.schema()).partitions()


@pytest.mark.parametrize(("name", "value", "allowed"), BAD_VALUES)
def test_a_bad_value_names_the_option_and_what_is_allowed(
    name: str, value: str, allowed: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged by: every option's bad value, before any task starts."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(PocketMQError) as caught:
        plan(name, value, root)
    assert name in str(caught.value)
    assert allowed in str(caught.value)


def test_every_option_of_the_table_has_a_bad_value_above() -> None:
    """A new option cannot come without saying what is wrong with it."""
    assert {name for name, _, _ in BAD_VALUES} == set(Options.keys())
    assert set(Options.keys()) > WRITE_ONLY | STREAM_ONLY | BATCH_ONLY


def test_good_values_get_through_the_same_way(root: str) -> None:
    """So that the errors above are not those of the test's own frame."""
    plan("startingOffsets", "earliest", root)
    plan("maxTriggerDelay", "5m", root)
    plan("paths", f'["{root}"]', root)
    with pytest.raises(PocketMQError, match=r"cannot connect to 127\.0\.0\.1:1"):
        plan("delivery", "ledger", root)


def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(IllegalArgument, match="did you mean 'startingOffsets'"):
        parse_options({"startingOffset": "earliest"})


def test_names_are_case_insensitive_as_spark_passes_them() -> None:
    options = parse_options({"nameserver": "h:1", "FAILONDATALOSS": "false", "topic": "a, b,a"})
    assert options.name_server == "h:1"
    assert options.fail_on_data_loss is False
    assert options.topics == ("a", "b")


def test_two_ways_to_choose_topics_exclude_each_other() -> None:
    with pytest.raises(IllegalArgument, match=r"subscribe and subscribePattern"):
        topics_of(parse_options({"subscribe": "a", "subscribePattern": "b.*"}))


@pytest.mark.parametrize(
    ("use", "given"),
    [
        (READ, {"maxOffsetsPerTrigger": "5"}),
        (READ, {"delivery": "ledger"}),
        (STREAM, {"endingOffsets": "latest"}),
        (STREAM, {"queueSelector": "hash"}),
        (WRITE, {"startingOffsets": "earliest"}),
        (WRITE, {"columns": "all"}),
    ],
)
def test_an_option_without_effect_in_this_use_is_refused(use: str, given: dict[str, str]) -> None:
    with pytest.raises(IllegalArgument, match=next(iter(given))):
        check_use(given, use)


def test_what_spark_itself_passes_is_let_through() -> None:
    given = {"checkpointLocation": "/x", "queryName": "q", "path": "/s"}
    assert parse_options(given) == Options(path="/s")


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("8k", 8192), ("8M", 8 << 20), ("1gb", 1 << 30), (" 2 m ", 2 << 20)],
)
def test_sizes_are_numbers_with_units(text: str, size: int) -> None:
    assert parse_size(text, "x") == size


def test_tags_of_a_subscription_expression() -> None:
    assert parse_options({"subExpression": " A || B||C "}).tags == ("A", "B", "C")
    assert parse_options({"subExpression": "*"}).tags == ()


def test_every_option_is_in_the_table_of_the_documentation() -> None:
    table = spark_tables.options()
    for name in Options.keys().keys() - NOT_FOR_USERS:
        assert f"| `{name}` |" in table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {
                "startingOffsets": '{"T":{"broker-a":{"0":4,"1":0}}}',
                "endingOffsets": '{"T":{"broker-a":{"0":3,"1":5}}}',
            },
            "topic T, broker broker-a, queue 0: there is nothing to read",
        ),
        (
            {"startingOffsets": '{"T":{"0":4}}', "endingOffsets": '{"T":{"0":3}}'},
            "startingOffsets 4 is beyond endingOffsets",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"T":{"broker-a":{"1":40}}}',
                "endingOffsetsByTimestamp": '{"T":{"broker-a":{"1":30}}}',
            },
            "startingOffsetsByTimestamp 40 is beyond",
        ),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "no row can be between"),
    ],
)
def test_a_start_behind_the_end_is_an_error(
    options: dict[str, str], message: str, root: str
) -> None:
    """It was a query without rows."""
    source = PocketMQDataSource({"path": root} | options)
    with pytest.raises(IllegalArgument, match=message):
        source.reader(source.schema())


def test_what_a_selection_takes_in_unnamed_is_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(Message(topic=t) for t in ("T", "U", "%RETRY%G", "%DLQ%G"))

    def said(**options: str) -> list[str]:
        caplog.clear()
        source = PocketMQDataSource({"path": str(store.root)} | options)
        source.reader(source.schema()).partitions()
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    (line,) = said()
    assert "retry_and_dead_letter_topics count=2 first=%DLQ%G,%RETRY%G" in line
    assert said(subscribe="T,U") == []
    (line,) = said(subscribe="T,U", startingOffsets='{"T":{"broker-a":{"0":1}}}')
    assert "queues_without_starting_offset count=1 first=U/broker-a/0" in line


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.bootstrap.servers", "here nameServer names the name servers"),
        ("kafka.max.poll.records", "nothing takes its place"),
        ("includeHeaders", "columns=kafka has the column headers"),
        ("groupIdPrefix", "reads need no group of their own"),
    ],
)
def test_an_option_of_kafkas_source_says_what_takes_its_place(name: str, instead: str) -> None:
    with pytest.raises(IllegalArgument, match=instead):
        parse_options({name: "x"})


def test_offsets_of_one_broker_need_not_name_it(root: str, tmp_path: Path) -> None:
    def planned(path: str, offsets: str) -> int:
        source = PocketMQDataSource({"path": path, "startingOffsets": offsets})
        reader = source.reader(source.schema())
        return sum(b.num_rows for p in reader.partitions() for b in reader.read(p))

    assert planned(root, '{"T":{"0":3,"1":1}}') == 2 + 4
    second = WrittenStore(tmp_path / "broker-b" / "store")
    second.add(Message(body=b"second") for _ in range(3))
    with pytest.raises(IllegalArgument, match="need one broker; there are"):
        planned(f"{root},{second.root}", '{"T":{"0":3}}')


def test_a_plan_shows_pushed_filters_and_partitions(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pocketmq.spark")
    source = PocketMQDataSource({"path": root, "columns": "queueOffset"})
    source.reader(source.schema()).partitions()
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("planned")]
    assert line == "planned stores=1 queues=2 partitions=1 columns=queueOffset pushed=none"
    assert "decoded columns" not in caplog.text
    source = PocketMQDataSource({"path": root})
    source.reader(source.schema()).partitions()
    assert "decoded columns=11, whatever the query uses: to decode fewer" in caplog.text


def test_table_properties_are_no_options() -> None:
    """What Spark passes for CREATE TABLE ... USING pocketmq, and then for SELECT: nothing."""
    given = {
        "location": "file:/data/broker-a/store",
        "subscribe": "T",
        "option.subscribe": "T",
        "comment": "orders",
        "owner": "root",
        "provider": "pocketmq",
    }
    schema = PocketMQDataSource(given).schema()
    assert schema.fields[0].metadata["comment"] == "topic of the record"
    assert options_in(schema) == {"path": "file:/data/broker-a/store", "subscribe": "T"}
    assert options_in(PocketMQDataSource({"path": "/data"}).schema()) == {}
    with pytest.raises(IllegalArgument, match="secretKey would be stored in the catalog"):
        PocketMQDataSource(given | {"accessKey": "a", "secretKey": "s"}).schema()
    with pytest.raises(IllegalArgument, match="no option 'owner'"):
        PocketMQDataSource({"owner": "me"})


def test_the_environment_can_ask_for_the_plan(tmp_path: Path) -> None:
    """Spark makes the source in one process, and hands it to another one that plans."""
    store = WrittenStore(tmp_path / "b" / "store")
    store.add([Message()])
    source = PocketMQDataSource({"path": str(store.root), "columns": "tags"})
    code = (
        "import pickle, sys; s = pickle.load(sys.stdin.buffer); s.reader(s.schema()).partitions()"
    )
    planner = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(source),
        capture_output=True,
        check=True,
        env=os.environ | {"POCKETMQ_LOG": "INFO"},
    )
    assert b"planned stores=1 queues=1 partitions=1 columns=tags" in planner.stderr


def test_times_are_taken_as_people_write_them() -> None:
    """A length of time is ago; a date without a zone is local; both ends of a day."""
    day = datetime(2026, 11, 21)
    assert moment_ms("2026-11-21") == day.timestamp() * 1000
    assert moment_ms("2026-11-21T10:00+08:00") == 1_795_226_400_000
    assert moment_ms("90m", now_ms=10**13) == 10**13 - 5_400_000
    assert moment_ms("1795226400000") == 1_795_226_400_000
    with pytest.raises(IllegalArgument, match="in milliseconds it is 1795226400000"):
        moment_ms("1795226400")


def test_typing_errors_in_positions_name_what_is_near() -> None:
    known = {QueueKey("Orders", "b", 0)}
    for wanted in (
        Positions(offsets={"Order": {"b": {0: -2}}}),
        Positions(ms_by_queue={"Order": {"b": {0: 1}}}),
    ):
        with pytest.raises(IllegalArgument, match=r"'Order' \(did you mean 'Orders'"):
            check_known(known, wanted, "starting", LossRule())
    by_time = {"startingOffsetsByTimestamp": '{"T":{"b":{"0":1700000000}}}'}
    with pytest.raises(IllegalArgument, match="in milliseconds it is 1700000000000"):
        starting_of(parse_options(by_time), "earliest")
