"""docs/spark.md: each program runs alone, the tables are the code's."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.spark.bundle import main as bundle_main
from tests.house.doc_blocks import NAME_SERVER, ROOT, Block, blocks
from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.store.bulk_stores import Message, WrittenStore
from tools import spark_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"
MINE = [b for b in blocks(PAGE, "python", "sh") if "test_docs" in b.words.get("run by", "")]


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    """After a new option or column: python -m tools.spark_tables"""
    text = PAGE.read_text(encoding="utf-8")
    assert spark_tables.filled(text) == text, "run: python -m tools.spark_tables"


class Site:
    """What the page speaks of: a session, stores, a broker with topics, a place for the archive."""

    def __init__(self, folder: Path, namesrv: str, spark: "SparkSession") -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.spark = spark

    def run(self, block: Block) -> None:
        """Run it alone, with the session that the page makes first."""
        text = block.text.replace(NAME_SERVER, self.namesrv)
        for name in ("/data/", "/archive/"):
            text = text.replace(name, f"{self.folder}{name}")
        text = text.replace('.load("data")', f'.load("{self.folder}/data/broker-a/store")')
        exec(compile(text, block.name, "exec"), {"spark": self.spark})

    def check(self, block: Block, shown: str) -> None:
        """What the page says of a block is what it did. shown: what it printed."""
        if "writeStream" in block.text:
            assert self.spark.read.parquet(f"{self.folder}/archive/messages").count() == 42
        if '.mode("append")' in block.text:
            options = {"nameServer": self.namesrv, "subscribe": "OrdersSeen"}
            seen = self.spark.read.format("pocketmq").options(**options).load()
            assert {(bytes(r.body), r.tags, r["keys"]) for r in seen.collect()} == {
                (b"one", "tagA", "order-1"),
                (b"two", "tagB", "order-2"),
            }
        if "CREATE TABLE" in block.text:
            _check_tables(shown)


def _check_tables(shown: str) -> None:
    """DESCRIBE, time travel, a delay that is not due, a transaction without an end, dead letters."""
    rows = {tuple(c.strip() for c in line.split("|")[1:-1]) for line in shown.splitlines()}
    assert ("queueOffset", "bigint", "index in the queue") in rows
    assert {("0", "10"), ("1", "10")} <= rows
    assert {row for row in rows if row[-1:] == ("2100-01-01 00:00:00",)} == {
        ("Orders", "2100-01-01 00:00:00")
    }
    assert {row[1] for row in rows if row[1:2] and row[1].startswith("half")} == {"half1"}
    assert ("%DLQ%billing", "2") in rows


def pending(store: WrittenStore) -> None:
    """Two delays, one of them due; three transactions, of which one has no end; two dead letters."""
    real = b"REAL_TOPIC\x01Orders\x02"
    for due_ms in (1_700_000_000_000, 4_102_444_800_000):
        delayed = Message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=real)
        [position] = store.add([delayed])
        offset = store.offsets[delayed.topic, 2] - 1
        store.index(delayed, offset, position, store.position - position, code=due_ms)
    store.add(
        Message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=real + b"UNIQ_KEY\x01half%d\x02" % i)
        for i in range(3)
    )
    ended = Message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", body=b"0,2,", properties=b"TAGS\x01d\x02")
    store.add([ended, *(Message(topic="%DLQ%billing") for _ in range(2))])


@pytest.fixture(scope="module")
def site(
    spark: "SparkSession", broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    folder = tmp_path_factory.mktemp("page")
    store = WrittenStore(folder / "data" / "broker-a" / "store")
    store.add(
        Message(topic=topic, queue_id=i % 2) for topic in ("Orders", "TopicTest") for i in range(20)
    )
    pending(store)
    for topic in ("Orders", "OrdersSeen"):
        make_topic(broker, 2, topic)
    send(broker, "Orders", 20)
    wait_readable(broker, "Orders", 20)
    return Site(folder, broker.namesrv, spark)


@pytest.mark.parametrize("block", MINE, ids=lambda b: b.name)
def test_a_block_of_the_page_runs(
    block: Block,
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if block.language == "python":
        site.run(block)
        site.check(block, capsys.readouterr().out)
        return
    for line in block.text.splitlines():
        words = line.split()
        assert words[:3] == ["python", "-m", "pocketmq.spark.bundle"], line
        assert bundle_main(words[3:]) == 0
        assert (tmp_path / words[3]).stat().st_size > 10_000
