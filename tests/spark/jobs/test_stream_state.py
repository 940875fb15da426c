"""Streams with state of docs/spark.md: the backlog, watermarks, a join of two topics."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.spark.stream import HAS_LIMITS
from tests.house.doc_blocks import ROOT, blocks
from tests.spark.test_file_stream import reader_of
from tests.store.bulk_stores import Message, WrittenStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_700_000_000_000 // 60_000 * 60_000
MINUTE_MS = 60_000
PROGRESS, MINUTES, JOIN = (
    b
    for b in blocks(ROOT / "docs" / "spark.md", "python")
    if "test_stream_state" in b.words.get("run by", "")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An order a minute for an hour: a third is paid after 5 minutes, a third after 20, a third never."""
    folder = tmp_path_factory.mktemp("state")
    stored: list[tuple[int, str, int]] = []
    for i in range(60):
        stored.append((START_MS + i * MINUTE_MS, "Orders", i))
        if i % 3:
            stored.append((START_MS + (i + (5 if i % 3 == 1 else 20)) * MINUTE_MS, "Payments", i))
    # What comes a day later tells that the hour is over.
    stored += [(START_MS + 1440 * MINUTE_MS, topic, 1000) for topic in ("Orders", "Payments")]
    WrittenStore(folder / "data" / "broker-a" / "store").add(
        Message(topic=topic, queue_id=i % 2, properties=b"KEYS\x01k%d\x02" % i, store_ms=ms)
        for ms, topic, i in sorted(stored)
    )
    return folder


def run(block: Any, spark: "SparkSession", folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"spark": spark}
    text = block.text
    for name in ("/data/", "/archive/"):
        text = text.replace(name, f"{folder}{name}")
    exec(compile(text, block.name, "exec"), names)
    return names


@pytest.mark.skipif(not HAS_LIMITS, reason="a run of what is available would be one batch")
def test_each_minute_is_counted_once_and_nothing_is_behind(
    spark: "SparkSession", folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = run(MINUTES, spark, folder)["query"]
    rows = spark.read.parquet(f"{folder}/archive/minutes").collect()
    found = {
        (r.topic, (int(r.minute.timestamp() * 1000) - START_MS) // MINUTE_MS): r["count"]
        for r in rows
    }
    paid = [i + (5 if i % 3 == 1 else 20) for i in range(60) if i % 3]
    assert found == {("Orders", i): 1 for i in range(60)} | {
        ("Payments", at): paid.count(at) for at in paid
    }
    assert len(rows) == len(found)
    exec(PROGRESS.text, {"query": query})
    assert capsys.readouterr().out == "{'broker-a': {'messages': 0, 'seconds': 0.0}}\n"


@pytest.mark.skipif(not HAS_LIMITS, reason="a run of what is available would be one batch")
def test_orders_without_a_payment_in_time_are_found(spark: "SparkSession", folder: Path) -> None:
    run(JOIN, spark, folder)
    rows = spark.read.parquet(f"{folder}/archive/unpaid").collect()
    assert sorted(r["keys"] for r in rows) == sorted(f"k{i}" for i in range(60) if i % 3 != 1)


def test_the_backlog_counts_messages_and_the_age_of_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By broker, behind the batch that was planned."""
    now_ms = 1_700_000_000_000
    for name in ("broker-a", "broker-b"):
        store = WrittenStore(tmp_path / name / "store")
        store.add(
            Message(queue_id=i % 2, body=name.encode(), store_ms=now_ms - 50_000 + i * 1000)
            for i in range(40)
        )
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)
    reader = reader_of(store, path=str(tmp_path / "*" / "store"))
    start = reader.initialOffset()
    start["offsets"]["T"]["broker-b"] = {"0": 20, "1": 20}
    end = reader.after(start, 20, 0)
    assert reader.newest()["behind"] == {
        # Offset 10 of queue 0 is message 20 of both queues.
        "broker-a": {"messages": 20, "seconds": 30.0},
        "broker-b": {"messages": 0, "seconds": 0.0},
    }
    reader.after(end, 0, 0)
    assert reader.newest()["behind"]["broker-a"] == {"messages": 0, "seconds": 0.0}
