"""The notebooks and the dashboard, run in the tests' session: they draw what the store holds."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

from pocketmq import bulk
from pocketmq.spark.stream import HAS_LIMITS
from tests.spark.jobs.notebooks import (
    EXECUTED,
    NOTEBOOKS,
    STORE,
    TOPICS,
    executed,
    notebook_at,
    stored,
)
from tests.spark.jobs.test_examples import example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def counts(root: Path) -> dict[str, int]:
    rows = bulk.scan(str(root), topics=list(TOPICS), columns="topic").read_all()
    return {
        row["topic"]: row["topic_count"]
        for row in rows.group_by("topic").aggregate([("topic", "count")]).to_pylist()
    }


def test_the_cells_of_a_notebook_draw_what_the_store_holds(
    spark: "SparkSession",
    root: Path,
    counts: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    monkeypatch.setenv(STORE, str(root))
    (path,) = BOOKS
    names: dict[str, Any] = {}
    drawn: list[Any] = []
    for number, cell in enumerate(notebook_at(path).cells):
        if cell.cell_type == "code":
            exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
            drawn += [plt.figure(number).axes[0] for number in plt.get_fignums()]
            plt.close("all")
    minutes, _, _, latency = drawn
    assert {line.get_label(): sum(line.get_ydata()) for line in minutes.lines} == counts
    assert {tuple(row) for row in names["lag"][["group", "topic"]].values} == {
        ("shipping", "Orders"),
        ("billing", "Orders"),
    }
    books = names["books"]
    assert books.loc["billing"]["lost"] > 0
    assert list(books["dead"]) == [0, 3, 0]
    assert not books["difference"].any()
    waiting = names["lag"].set_index("group")["messages"]
    assert {group: books.loc[group]["waiting"] for group in waiting.index} == waiting.to_dict()
    assert sum(bar.get_height() for bar in latency.patches) == sum(counts.values())
    assert "half of all messages took 3 ms or less" in capsys.readouterr().out


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_the_pictures_of_its_cells(path: Path) -> None:
    """After a change of a cell: python -m tests.spark.jobs.notebooks"""
    notebook = notebook_at(path)
    assert notebook.metadata[EXECUTED] == executed(notebook), (
        "run: python -m tests.spark.jobs.notebooks"
    )
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    assert sum("image/png" in each.get("data", {}) for each in outputs) == 4
    text = json.dumps(
        [each.get("text", "") for each in outputs] + [c.source for c in notebook.cells]
    )
    assert not any(folder in text for folder in ("/tmp", "/home", "/root", "/usr"))
    assert path.stat().st_size < 200_000


@pytest.mark.skipif(not HAS_LIMITS, reason="a run of what is available would be one batch")
def test_the_dashboard_draws_traffic_and_backlog(
    spark: "SparkSession", root: Path, counts: dict[str, int], tmp_path: Path
) -> None:
    dashboard = example("spark_dashboard")
    half = sum(counts.values()) // 2
    options = {"subscribe": ",".join(TOPICS), "maxOffsetsPerTrigger": str(half)}
    query = dashboard.traffic(spark, str(root), once=True, **options)
    query.awaitTermination()
    rows = spark.table("traffic").orderBy("minute").collect()
    figure = dashboard.draw(query, rows, str(tmp_path / "dashboard.svg"))
    above, below = figure.axes
    assert {line.get_label(): sum(line.get_ydata()) for line in above.lines} == counts
    (backlog,) = below.lines
    assert backlog.get_label() == "broker-a"
    assert sum(counts.values()) - half <= backlog.get_ydata()[0] <= half + 8
    assert backlog.get_ydata()[-1] == 0
    assert (tmp_path / "dashboard.svg").read_text().count("<path") > 20
    spark.sql("DROP VIEW IF EXISTS traffic")
