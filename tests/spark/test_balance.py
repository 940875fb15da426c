"""The balance of a group as a frame, of stores that RocketMQ wrote."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.remoting.errors import IllegalArgument
from tests.house.doc_blocks import ROOT, blocks
from tests.store.bulk_stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP, TOPIC = "GdGidRetry", "GdRetry"


def test_the_books_of_several_stores_are_one_frame(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pocketmq.spark import balance

    for name in ("v497-main.clean", "v550-main.clean"):
        unpack(name, tmp_path / name)
    path = f"{tmp_path}/*/store"
    [row] = balance(spark, path, GROUP).where("stored > 0").collect()
    assert (row.topic, row["group"], row.stored, row.difference) == (TOPIC, GROUP, 12, 0)
    assert (row.dead, row.unknown, row.lost) == (4, 8, 0)
    found = balance(spark, path, GROUP, listed="dead", subscriptions=["A || B"])
    names = {(each.broker, each.state) for each in found.collect()}
    assert names == {("v497-main.clean", "dead"), ("v550-main.clean", "dead")}
    (block,) = [
        b
        for b in blocks(ROOT / "docs" / "spark.md", "python")
        if "spark/test_balance" in b.words.get("run by", "")
    ]
    text = block.text.replace("/data/*/store", path)
    exec(compile(text, block.name, "exec"), {"spark": spark})
    assert "|GdRetry|    12|   4|      8|" in capsys.readouterr().out
    with pytest.raises(IllegalArgument, match="groups there"):
        balance(spark, path, "Nope")
    with pytest.raises(IllegalArgument, match="states are"):
        balance(spark, path, GROUP, listed="gone")
