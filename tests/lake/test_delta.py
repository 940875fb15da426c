"""`pocketmq lake --format delta`: what Iceberg's tests do not show of the other format."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from pocketmq.bulk.bodies.columns import BodyColumns
from pocketmq.lake.check import Check, Compared
from pocketmq.lake.copy import LakeCopy, Watch
from pocketmq.lake.delta import DeltaTables
from pocketmq.lake.maintain import Upkeep
from pocketmq.lake.position import MARKS_KEY
from pocketmq.lake.table import TableInUse
from pocketmq.remoting.errors import IllegalArgument
from tests.lake.lakes import SMALL, add, copy_to_delta, in_order, rows_by_deltalake, source, stored
from tests.store.bulk_stores import Message, WrittenStore


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def orders(warehouse: Path) -> DeltaTable:
    return DeltaTable(warehouse / "pocketmq" / "Orders")


def held(warehouse: Path) -> list[dict[str, Any]]:
    return in_order(rows_by_deltalake(warehouse))


def check(warehouse: Path, store: WrittenStore) -> Compared:
    return Check(DeltaTables(str(warehouse)), source(store.root)).run()


def meanwhile(act: Callable[[], object]) -> Watch:
    """Does something once a round has opened its tables."""

    def watch(parts: Iterable[Any], total: int) -> Iterator[Any]:
        act()
        yield from parts

    return watch


def test_each_run_adds_what_is_new_by_day(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 400)
    assert copy_to_delta(warehouse, store.root, limits=SMALL) == {"pocketmq.Orders": 400}
    assert copy_to_delta(warehouse, store.root) == {}
    add(store, 400, 50)
    assert copy_to_delta(warehouse, store.root) == {"pocketmq.Orders": 50}
    assert held(warehouse) == stored(store)
    table = orders(warehouse)
    assert table.metadata().partition_columns == ["storeDay"]
    rows = table.to_pyarrow_table(columns=["storeTimestamp", "storeDay"]).to_pylist()
    assert all(row["storeDay"] == row["storeTimestamp"].date().isoformat() for row in rows)
    found = check(warehouse, store)
    assert (found.compared, found.is_equal) == (450, True)


def test_bounds_of_files_hide_no_row_from_a_filter(store: WrittenStore, warehouse: Path) -> None:
    """Of each column, null ones, long texts and times between two milliseconds among them."""
    add(store, 0, 30)
    long = b"KEYS\x01" + b"k" * 40 + b"%d\x02"
    store.add(Message(topic="Orders", properties=long % i) for i in range(9))
    body = BodyColumns.of(
        "price DECIMAL(20,2), day DATE, paid BOOLEAN, at TIMESTAMP, weight DOUBLE"
    )
    store.add(
        Message(
            topic="Orders",
            body=json.dumps(
                {"price": i + 0.01, "day": f"2026-11-0{i}", "paid": i % 2 == 0, "weight": i / 3,
                 "at": f"2026-11-0{i}T10:00:00.123456Z"}
            ).encode(),
        )
        for i in range(1, 9)
    )  # fmt: skip
    LakeCopy(DeltaTables(str(warehouse)), source(store.root), body=body).round()
    rows = orders(warehouse).to_pyarrow_table()
    dataset = orders(warehouse).to_pyarrow_dataset()
    for name in rows.column_names:
        values = {value for value in rows.column(name).to_pylist() if not isinstance(value, list)}
        for value in values - {None}:
            wanted = ds.field(name) == value
            assert dataset.count_rows(filter=wanted) == rows.filter(wanted).num_rows > 0, (
                name,
                value,
            )


def test_commits_of_other_engines_do_not_hide_the_position(
    store: WrittenStore, warehouse: Path
) -> None:
    """OPTIMIZE, VACUUM; and then the log of our commits is cleaned up."""
    for first in (0, 50):
        add(store, first, 50)
        copy_to_delta(warehouse, store.root)
    before = orders(warehouse)
    assert before.optimize.compact()["numFilesRemoved"] > 0
    before.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert copy_to_delta(warehouse, store.root) == {}
    add(store, 100, 20)
    assert copy_to_delta(warehouse, store.root) == {"pocketmq.Orders": 20}
    assert held(warehouse) == stored(store)
    table = orders(warehouse)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    table.create_checkpoint()
    for path in sorted((warehouse / "pocketmq" / "Orders" / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    assert not any(MARKS_KEY in commit for commit in orders(warehouse).history())
    add(store, 120, 20)
    assert copy_to_delta(warehouse, store.root) == {"pocketmq.Orders": 20}
    assert held(warehouse) == stored(store)


def test_two_copies_at_a_time_write_no_row_twice(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 50)
    copy_to_delta(warehouse, store.root)
    add(store, 50, 50)
    run = LakeCopy(DeltaTables(str(warehouse)), source(store.root))
    with pytest.raises(TableInUse, match="another process"):
        run.round(meanwhile(lambda: copy_to_delta(warehouse, store.root)))
    assert held(warehouse) == stored(store)


def test_a_commit_continues_behind_another_engines(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 50)
    copy_to_delta(warehouse, store.root, limits=SMALL)
    add(store, 50, 50)
    run = LakeCopy(DeltaTables(str(warehouse)), source(store.root))
    settings = {"delta.logRetentionDuration": "interval 9 days"}
    watch = meanwhile(lambda: orders(warehouse).alter.set_table_properties(settings))
    assert run.round(watch) == 50
    assert held(warehouse) == stored(store)


def test_the_comparison_finds_a_row_that_is_missing(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 100)
    copy_to_delta(warehouse, store.root)
    orders(warehouse).delete("queueId = 1 AND queueOffset = 5")
    found = check(warehouse, store)
    assert (found.missing, found.extra, found.different, found.compared) == (1, 0, 0, 99)


def test_fields_of_bodies_are_columns_that_may_be_more(
    store: WrittenStore, warehouse: Path
) -> None:
    def run(schema: str | None, text: bytes) -> None:
        store.add([Message(topic="Orders", body=text)])
        body = None if schema is None else BodyColumns.of(schema)
        LakeCopy(DeltaTables(str(warehouse)), source(store.root), body=body).round()

    run(None, b'{"id":1}')
    run("id INT", b'{"id":2}')
    run("id INT, lines ARRAY<STRUCT<n: SMALLINT>>", b'{"id":3,"lines":[{"n":1}]}')
    rows = sorted(held(warehouse), key=lambda row: row["queueOffset"])
    assert [(row["id"], row["lines"]) for row in rows] == [(None, None), (2, None), (3, [{"n": 1}])]
    with pytest.raises(IllegalArgument, match=r"id is int32, and a Delta table keeps its types"):
        run("id STRING", b"{}")


def test_other_partitions_and_columns_that_are_null(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 30)
    store.add(Message(topic="Orders", properties=b"") for _ in range(3))
    tables = DeltaTables(str(warehouse))
    LakeCopy(tables, source(store.root), partitions=("month", "tags", "queueId")).round()
    table = orders(warehouse)
    assert table.metadata().partition_columns == ["storeMonth", "tags", "queueId"]
    rows = table.to_pyarrow_table()
    assert set(rows.column("storeMonth").to_pylist()) == {"2023-11"}
    assert rows.column("tags").null_count == 3
    assert check(warehouse, store).is_equal
    with pytest.raises(
        IllegalArgument, match="partitioned by storeMonth, tags, queueId and stays so"
    ):
        LakeCopy(tables, source(store.root), partitions=("day",)).round()


def test_a_recreated_topic_continues_its_table(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 90)
    copy_to_delta(warehouse, store.root)
    rows = stored(store)
    shutil.rmtree(store.root / "consumequeue" / "Orders")
    store.offsets.clear()
    add(store, 90, 30)
    copy_to_delta(warehouse, store.root)
    assert held(warehouse) == in_order(rows + stored(store))


def test_upkeep_is_left_to_deltas_own_commands(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 3)
    run = LakeCopy(DeltaTables(str(warehouse)), source(store.root))
    run.round()
    with pytest.raises(IllegalArgument, match="OPTIMIZE and VACUUM"):
        run.maintain(Upkeep(merge=True))
