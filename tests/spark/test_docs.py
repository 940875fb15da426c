"""docs/spark.md and the README's Spark part: programs run in order, the tables are the code's."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.house.doc_blocks import NAME_SERVER, ROOT, Block, blocks
from tests.interop.brokers import RunningBroker
from tests.spark.broker_topics import make_topic, send, wait_readable
from tests.store.bulk_stores import Message, WrittenStore
from tools import spark_tables

from pocketmq.spark.bundle import main as bundle_main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "spark.md"
MINE = [
    *(b for b in blocks(PAGE, "python", "sh") if "test_docs" in b.words.get("run by", "")),
    *(b for b in blocks(ROOT / "README.md", "python") if "spark" in b.words.get("run by", "")),
]


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    """After a new option or column: python -m tools.spark_tables"""
    text = PAGE.read_text(encoding="utf-8")
    assert spark_tables.filled(text) == text, "run: python -m tools.spark_tables"


class Site:
    """What the page speaks of: stores, a broker with topics, a place for the archive."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.names: dict[str, Any] = {}

    def run(self, block: Block) -> None:
        text = block.text.replace(NAME_SERVER, self.namesrv)
        for name in ("/data/", "/archive/"):
            text = text.replace(name, f"{self.folder}{name}")
        text = text.replace('.load("data")', f'.load("{self.folder}/data/broker-a/store")')
        # Later blocks use the names of earlier ones, as a reader does.
        exec(compile(text, block.name, "exec"), self.names)


@pytest.fixture(scope="module")
def site(
    spark: "SparkSession", broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    folder = tmp_path_factory.mktemp("page")
    store = WrittenStore(folder / "data" / "broker-a" / "store")
    store.add(
        Message(topic=topic, queue_id=i % 2) for topic in ("Orders", "TopicTest") for i in range(20)
    )
    for topic in ("Orders", "OrdersSeen"):
        make_topic(broker, 2, topic)
    send(broker, "Orders", 20)
    wait_readable(broker, "Orders", 20)
    return Site(folder, broker.namesrv)


@pytest.mark.parametrize("block", MINE, ids=lambda b: b.name)
def test_a_block_of_the_page_runs(
    block: Block, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if block.language == "python":
        site.run(block)
        return
    for line in block.text.splitlines():
        words = line.split()
        assert words[:3] == ["python", "-m", "pocketmq.spark.bundle"], line
        assert bundle_main(words[3:]) == 0
        assert (tmp_path / words[3]).stat().st_size > 10_000


def test_what_the_page_wrote_is_there(site: Site, spark: "SparkSession") -> None:
    """The blocks did what the page says, not only run through."""
    if "query" not in site.names:
        pytest.skip("the blocks did not run")
    assert spark.read.parquet(f"{site.folder}/archive/messages").count() == 40
    options = {"nameServer": site.namesrv, "subscribe": "OrdersSeen"}
    seen = spark.read.format("pocketmq").options(**options).load()
    assert {(bytes(r.body), r.tags, r["keys"]) for r in seen.collect()} == {
        (b"one", "tagA", "order-1"),
        (b"two", "tagB", "order-2"),
    }
