"""The jobs in examples/ run on recorded stores and give what can be counted by hand from the manifests."""

import collections
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.store.bulk_stores import Message, WrittenStore, manifest, moment, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
NAME = "v550-main.clean"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(NAME, tmp_path_factory.mktemp("golden-a"))


def messages() -> list[dict[str, Any]]:
    """What a consumer sees, inner batches opened."""
    rows = []
    for m in manifest(NAME)["messages"]:
        rows += [m | part for part in m.get("inner", [m])]
    return rows


def users(topic: str) -> bool:
    return not topic.lower().startswith("rmq_sys_") and topic != "SCHEDULE_TOPIC_XXXX"


def test_messages_per_topic_tag_and_minute(spark: "SparkSession", store: Path) -> None:
    rows = example("spark_messages_per_minute").messages_per_minute(spark, str(store)).collect()
    wanted: collections.Counter[tuple[str, str | None, int]] = collections.Counter()
    for m in messages():
        if users(m["topic"]):
            wanted[m["topic"], m["tags"], m["storeTimestamp"] // 60_000] += 1
    found = {(r.topic, r.tags, int(r.minute.timestamp()) // 60): r.messages for r in rows}
    assert found == dict(wanted)
    assert all(r.bytes >= 91 * r.messages or r.topic == "GdBcq" for r in rows)


def test_who_has_consumed_what(spark: "SparkSession", store: Path) -> None:
    rows = example("spark_who_has_consumed").who_has_consumed(spark, str(store)).collect()
    offsets = manifest(NAME)["view"]["consumerOffset"]["offsetTable"]
    places = collections.defaultdict(list)
    for m in messages():
        places[m["topic"], m["queueId"]].append((m["queueOffset"], m["storeTimestamp"]))
    wanted = {}
    for name, queues in offsets.items():
        topic, _, group = name.partition("@")
        for queue, offset in queues.items():
            place = places.get((topic, int(queue)))
            if place and users(topic):
                waiting = [t for o, t in place if o >= offset]
                wanted[group, topic, int(queue)] = (
                    offset,
                    len(place) - len(waiting),
                    len(waiting),
                    moment(min(waiting)).timestamp() if waiting else None,
                )
    found = {
        (r.group, r.topic, r.queueId): (
            r.nextOffset,
            r.consumed,
            r.waiting,
            r.oldestWaiting.timestamp() if r.oldestWaiting else None,
        )
        for r in rows
    }
    assert found == wanted
    assert found


def test_dead_letters_by_cause(spark: "SparkSession", store: Path) -> None:
    rows = example("spark_dead_letters").dead_letters(spark, str(store)).collect()
    dead = [m for m in messages() if m["topic"].startswith("%DLQ%")]
    assert dead
    limits = manifest(NAME)["view"]["subscriptionGroup"]["subscriptionGroupTable"]
    wanted: collections.Counter[tuple[str, str, str, str]] = collections.Counter()
    for m in dead:
        group = m["topic"].removeprefix("%DLQ%")
        used_up = m["reconsumeTimes"] >= limits[group]["retryMaxTimes"]
        cause = "retries used up" if used_up else "given back for good"
        wanted[group, m["properties"]["RETRY_TOPIC"], m["tags"], cause] += 1
    assert {(r.group, r.originTopic, r.tags, r.cause): r.messages for r in rows} == dict(wanted)


def test_the_subscription_audit(spark: "SparkSession", tmp_path: Path) -> None:
    """The second article: one group, tagA and tagB by two members; tagC by no member."""
    start = 1_700_000_000_000 // 60_000 * 60_000
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(
        Message(
            queue_id=i % 4,
            properties=f"TAGS\x01tag{'ABC'[i % 3]}\x02".encode(),
            store_ms=start + i * 1000,
        )
        for i in range(180)
    )
    seen = tmp_path / "subscriptions.jsonl"
    lines = [
        # Together from the second minute on.
        {"seen": start, "client": "a", "expression": "tagA"},
        {"seen": start + 60_000, "client": "a", "expression": "tagA"},
        {"seen": start + 61_000, "client": "b", "expression": " tagB"},
        {"seen": start + 120_000, "client": "b", "expression": "tagB"},
    ]
    seen.write_text("".join(json.dumps(r | {"group": "g", "topic": "T"}) + "\n" for r in lines))
    tables = example("spark_subscription_audit").audit(spark, str(store.root), str(seen))
    (unsubscribed,) = tables["unsubscribed_tags"].collect()
    assert (unsubscribed.topic, unsubscribed.tags, unsubscribed.messages) == ("T", "tagC", 60)
    (differing,) = tables["differing_groups"].collect()
    assert (differing.group, differing.variants) == ("g", ["tagA", "tagB"])
    assert differing["from"].timestamp() * 1000 == start + 60_000
    lost = {r.tags: r.messages for r in tables["filtered_away"].collect()}
    assert lost == {"tagA": 20, "tagB": 20}


def test_the_archive_has_every_message_once_by_topic_and_day(
    spark: "SparkSession", tmp_path: Path
) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    day = 86_400_000
    store.add(
        Message(topic=f"T{i % 2}", body=b"%d" % i, store_ms=1_700_000_000_000 + i * day // 4)
        for i in range(20)
    )
    out = tmp_path / "archive"
    archive = example("spark_archive").archive
    archive(spark, str(store.root), str(out)).awaitTermination()
    store.add(
        Message(topic="T2", body=b"20", store_ms=1_700_000_000_000 + 5 * day) for _ in range(1)
    )
    archive(spark, str(store.root), str(out)).awaitTermination()
    rows = spark.read.parquet(str(out / "messages")).collect()
    assert sorted(int(bytes(r.body)) for r in rows) == list(range(21))
    assert {r.day for r in rows} == {r.storeTimestamp.date() for r in rows}
    assert {p.name for p in (out / "messages").glob("topic=*")} == {
        "topic=T0",
        "topic=T1",
        "topic=T2",
    }


def test_every_spark_example_begins_with_its_command() -> None:
    for path in sorted(EXAMPLES.glob("spark_*.py")):
        assert f"python examples/{path.name} " in path.read_text().split('"""')[1]
