"""Maintained tables: fewer files and snapshots, the same rows, and the copy continues behind them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pocketmq.lake.catalog import opened_catalog
from pocketmq.lake.compact import compact
from pocketmq.lake.copy import LakeCopy
from pocketmq.lake.expire import delete_unnamed, expire
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.lake.maintain import Maintained, Upkeep, maintain
from pocketmq.lake.partitions import checked_partitions
from pocketmq.lake.position import position_of
from pocketmq.remoting.errors import IllegalArgument
from tests.lake.lakes import add, check, copy, held, rewrite, source, stored
from tests.store.bulk_stores import WrittenStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

FAR = 1 << 45
NOW = Upkeep(merge=True, keep_ms=-FAR, few=1, unnamed_ms=-FAR)


@pytest.fixture
def warehouse(tmp_path: Path, store: WrittenStore) -> Path:
    """Six commits, all of the second of three days, the first and the last also of another one."""
    for first in range(0, 240, 40):
        add(store, first, 40)
        copy(tmp_path / "warehouse", store.root)
    return tmp_path / "warehouse"


@pytest.fixture
def catalog(warehouse: Path) -> Iterator["Catalog"]:
    with opened_catalog(str(warehouse)) as opened:
        yield opened


@pytest.fixture
def table(catalog: "Catalog") -> "Table":
    return catalog.load_table("pocketmq.Orders")


def files_of(table: "Table") -> list[Path]:
    table.refresh()
    files = [task.file for task in table.scan().plan_files()]
    return [Path(file.file_path.removeprefix("file://")) for file in files]


def test_small_files_become_one_for_each_partition(
    table: "Table", store: WrittenStore, warehouse: Path
) -> None:
    position = position_of(table)
    before = len(files_of(table))
    assert (before, compact(table, few=1)) == (8, (6, 1))
    files = files_of(table)
    assert len(files) == 3
    for file in files:
        rows = pq.read_table(file, partitioning=None).to_pylist()
        places = [(row["queueId"], row["queueOffset"]) for row in rows]
        assert places == sorted(places)
    assert position_of(table) == position
    assert compact(table, few=1) == (0, 0)
    add(store, 240, 30)
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 30}
    assert held(warehouse) == stored(store)
    assert check(warehouse, store.root).compared == 270


def test_few_small_files_and_full_ones_are_left_alone(table: "Table") -> None:
    files = files_of(table)
    assert compact(table, few=len(files)) == (0, 0)
    assert compact(table, few=1, full_bytes=1000) == (0, 0)
    # Full with two or three of them: no rest of a few is merged.
    merged, into = compact(table, few=100, full_bytes=20_000)
    assert merged > into > 0
    assert len(files_of(table)) == len(files) - merged + into


def test_a_merge_and_a_copy_at_a_time_lose_nothing(
    catalog: "Catalog", table: "Table", store: WrittenStore, warehouse: Path
) -> None:
    late = LakeCopy(IcebergTables(catalog), source(store.root))
    assert late.round() == 0
    add(store, 240, 30)
    other = catalog.load_table("pocketmq.Orders")
    assert compact(table, few=1)[0]
    # Opened before the merge, committed after it.
    assert late.round() == 30
    assert compact(other, few=1) == (0, 0)
    stale = catalog.load_table("pocketmq.Orders")
    add(store, 270, 30)
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 30}
    assert compact(stale, few=1)[0]
    assert held(warehouse) == stored(store)


def test_snapshots_expire_and_their_files_are_deleted(
    catalog: "Catalog", table: "Table", store: WrittenStore, warehouse: Path
) -> None:
    folder = warehouse / "pocketmq" / "Orders"
    before = len(files_of(table))
    done = maintain(catalog, NOW)
    assert (done.merged, done.into, done.expired) == (before - 2, 1, 6)
    assert len(list(folder.rglob("*.parquet"))) == 3
    assert done.deleted > before
    assert maintain(catalog, NOW) == Maintained()
    add(store, 240, 30)
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 30}
    assert held(warehouse) == stored(store)


def test_young_files_stay(table: "Table", warehouse: Path) -> None:
    left = warehouse / "pocketmq" / "Orders" / "data" / "left.parquet"
    left.write_bytes(b"of a killed process")
    os.utime(left, (1_000, 1_000))
    young = left.with_name("young.parquet")
    young.write_bytes(b"of a commit that is under way")
    assert delete_unnamed(table, 2_000_000) == 1
    assert not left.exists()
    assert young.exists()


def test_nothing_is_deleted_where_files_may_be_elsewhere(table: "Table") -> None:
    with table.transaction() as change:
        change.set_properties({"write.data.path": "file:///elsewhere"})
    assert delete_unnamed(table, FAR) == 0


def test_the_snapshot_with_the_position_does_not_expire(table: "Table") -> None:
    """Another engine's snapshot, which has none, is the current one."""
    position = position_of(table)
    rewrite(table, table.scan().to_arrow())
    assert expire(table, FAR) == 5
    assert len(table.snapshots()) == 2
    assert position_of(table) == position


def test_other_tables_of_the_namespace_are_left_alone(catalog: "Catalog", table: "Table") -> None:
    other = catalog.create_table("pocketmq.mine", table.schema())
    other.append(table.scan().to_arrow())
    other.append(table.scan().to_arrow())
    maintain(catalog, NOW)
    assert len(files_of(other)) == 2
    assert len(other.snapshots()) == 2


@pytest.mark.parametrize(
    ("words", "partitions"),
    [("hour", 30), ("month,queueId", 3), ("tags", 4), ("year, brokerName", 1)],
)
def test_other_partitions(store: WrittenStore, tmp_path: Path, words: str, partitions: int) -> None:
    add(store, 0, 240)
    warehouse = tmp_path / "warehouse"
    with opened_catalog(str(warehouse)) as catalog:
        for _ in range(2):
            chosen = checked_partitions(words)
            LakeCopy(IcebergTables(catalog), source(store.root), partitions=chosen).round()
            add(store, 240, 1)
        table = catalog.load_table("pocketmq.Orders")
        assert len({str(t.file.partition) for t in table.scan().plan_files()}) == partitions
        assert table.scan("queueId = 1 and tags = 't1'").count() == 20
        moment = "2023-11-15T00:00:00+00:00"
        wanted = sum(row["storeTimestamp"].isoformat() < moment for row in stored(store)[:-1])
        assert table.scan(f"storeTimestamp < '{moment}'").count() == wanted
        with pytest.raises(IllegalArgument, match="stays so"):
            LakeCopy(
                IcebergTables(catalog), source(store.root), partitions=("day", "queueId")
            ).round()
    copy(warehouse, store.root)
    assert held(warehouse) == stored(store)


@pytest.mark.parametrize("words", ["keys", "day,hour", "tags,tags", ""])
def test_partitions_that_are_none(words: str) -> None:
    with pytest.raises(IllegalArgument, match="--partition"):
        checked_partitions(words)
