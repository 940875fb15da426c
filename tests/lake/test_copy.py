"""Tables that follow stores: each message once, whatever happens to the store or the table in between."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.bulk import DataLoss
from pocketmq.bulk.archive import Archiver
from pocketmq.bulk.bodies.columns import BodyColumns
from pocketmq.lake.catalog import opened_catalog
from pocketmq.lake.copy import LakeCopy, Limits
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.lake.position import HEADS_KEY, MARKS_KEY, Position, position_of
from pocketmq.lake.source import OtherLog
from pocketmq.lake.table import LakeTable, TableInUse
from pocketmq.remoting.errors import IllegalArgument
from tests.lake.lakes import (
    DAY_MS,
    SMALL,
    add,
    check,
    copy,
    held,
    in_order,
    rewrite,
    source,
    stored,
    tables,
)
from tests.store.bulk_stores import Message, WrittenStore


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def test_each_run_adds_what_is_new(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 400)
    assert copy(warehouse, store.root, limits=SMALL) == {"pocketmq.Orders": 400}
    assert copy(warehouse, store.root) == {}
    add(store, 400, 50)
    add(store, 450, 9, topic="%RETRY%billing-1")
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 50, "pocketmq._RETRY_billing_1": 9}
    assert held(warehouse) == stored(store)


def test_a_table_is_partitioned_by_day_and_its_files_are_sorted(
    store: WrittenStore, warehouse: Path
) -> None:
    add(store, 0, 500)
    copy(warehouse, store.root)
    with tables(warehouse) as (catalog, _):
        table = catalog.load_table("pocketmq.Orders")
        files = [task.file for task in table.scan().plan_files()]
        assert len({file.partition[0] for file in files}) == len(files) == 4
        for file in files:
            import pyarrow.parquet as pq

            rows = pq.read_table(file.file_path, partitioning=None).to_pylist()
            places = [(row["queueId"], row["queueOffset"]) for row in rows]
            assert places == sorted(places)
            assert len({row["storeTimestamp"].date() for row in rows}) == 1
        ms = 1_700_000_000_000 + 300 * DAY_MS // 200
        scan = table.scan(f"storeTimestamp >= '{_iso(ms)}'")
        assert len(list(scan.plan_files())) == 2
        assert scan.count() == 200


def _iso(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def test_a_recreated_topic_continues_its_table(store: WrittenStore, warehouse: Path) -> None:
    """Old rows stay, and new ones are added, whether the new queues are shorter or longer than the old."""
    rows: list[dict[str, Any]] = []
    made = 0
    for count in (90, 30, 300, 0, 12):
        shutil.rmtree(store.root / "consumequeue" / "Orders", ignore_errors=True)
        store.offsets.clear()
        add(store, made, count)
        made += count
        copy(warehouse, store.root)
        rows += stored(store) if count else []
    assert held(warehouse) == in_order(rows)
    assert len(rows) == made
    found = check(warehouse, store.root)
    assert found.is_equal
    assert (found.compared, found.older) == (12, 420)


def test_messages_deleted_by_retention_are_a_skippable_loss(
    store: WrittenStore, warehouse: Path
) -> None:
    add(store, 0, 100)
    copy(warehouse, store.root)
    add(store, 100, 600)
    for path in sorted((store.root / "commitlog").iterdir())[:-3]:
        path.unlink()
    with pytest.raises(DataLoss, match=r"is wanted, but the queue begins at"):
        copy(warehouse, store.root)
    copy(warehouse, store.root, fail=False)
    rows = stored(store)
    assert held(warehouse)[-len(rows) :] == rows
    assert check(warehouse, store.root).older == 100


def test_a_log_that_was_replaced_is_refused(
    store: WrittenStore, warehouse: Path, tmp_path: Path
) -> None:
    add(store, 0, 200)
    copy(warehouse, store.root)
    shutil.rmtree(store.root)
    other = WrittenStore(store.root, log_file_size=1 << 14)
    add(other, 1000, 300)
    with pytest.raises(OtherLog, match="position"):
        copy(warehouse, store.root)
    shutil.rmtree(store.root)
    add(WrittenStore(store.root, log_file_size=1 << 14), 0, 3)
    with pytest.raises(OtherLog, match="truncated"):
        copy(warehouse, store.root)


def test_only_sealed_files_and_the_rest_later(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 400)
    sealed = sum(
        row["commitLogOffset"] < store.position // (1 << 14) << 14 for row in stored(store)
    )
    assert 0 < sealed < 400
    assert copy(warehouse, store.root, sealed=True) == {"pocketmq.Orders": sealed}
    assert check(warehouse, store.root, sealed=True).compared == sealed
    assert check(warehouse, store.root).waiting == 400 - sealed
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 400 - sealed}
    assert held(warehouse) == stored(store)


def test_an_archive_and_the_live_store_are_one_source(
    store: WrittenStore, warehouse: Path, tmp_path: Path
) -> None:
    add(store, 0, 400)
    whole = stored(store)
    archive = tmp_path / "archive" / "broker-a"
    list(Archiver(str(store.root), str(archive)).run())
    archived = copy(warehouse, archive)["pocketmq.Orders"]
    assert 0 < archived < 400
    for path in sorted((store.root / "commitlog").iterdir())[:2]:
        path.unlink()
    assert copy(warehouse, archive, store.root, limits=SMALL) == {"pocketmq.Orders": 400 - archived}
    assert held(warehouse) == whole
    assert check(warehouse, archive, store.root).compared == 400
    assert copy(warehouse, archive) == {}


def test_a_log_without_queues_is_walked(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 400)
    whole = stored(store)
    shutil.rmtree(store.root / "consumequeue")
    assert copy(warehouse, store.root, limits=SMALL) == {"pocketmq.Orders": 400}
    assert copy(warehouse, store.root) == {}
    assert held(warehouse) == whole


def test_topics_of_similar_names_share_a_table(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 60, topic="a-b")
    copy(warehouse, store.root)
    add(store, 60, 60, topic="a_b")
    add(store, 120, 60, topic="a-b")
    assert copy(warehouse, store.root) == {"pocketmq.a_b": 120}
    assert held(warehouse) == stored(store)
    assert check(warehouse, store.root).compared == 180


def test_only_named_topics(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 30, topic="a")
    add(store, 0, 30, topic="b")
    assert copy(warehouse, store.root, topics=["b"]) == {"pocketmq.b": 30}


def test_other_writers_snapshots_do_not_hide_the_position(
    store: WrittenStore, warehouse: Path
) -> None:
    """A compaction by another engine; then all snapshots but its own are expired."""
    add(store, 0, 200)
    copy(warehouse, store.root)
    with opened_catalog(str(warehouse)) as catalog:
        table = catalog.load_table("pocketmq.Orders")
        wanted = position_of(table)
        rewrite(table, table.scan().to_arrow())
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert Position.of_summary(snapshot.summary or {}) is None
        assert position_of(table) == wanted
        for snapshot in table.snapshots()[:-1]:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        table = catalog.load_table("pocketmq.Orders")
        assert position_of(table).marks == wanted.marks
    add(store, 200, 100)
    assert copy(warehouse, store.root) == {"pocketmq.Orders": 100}
    assert held(warehouse) == stored(store)


def test_a_commit_continues_behind_another_writers(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 50)
    copy(warehouse, store.root)
    add(store, 50, 50)
    with opened_catalog(str(warehouse)) as catalog:
        run = LakeCopy(IcebergTables(catalog), source(store.root))
        mine = catalog.load_table("pocketmq.Orders")
        run._table("Orders")
        rewrite(catalog.load_table("pocketmq.Orders"), mine.scan().to_arrow())
        assert run.round() == 50
    assert held(warehouse) == stored(store)


def test_two_copies_at_a_time_write_no_row_twice(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 50)
    copy(warehouse, store.root)
    add(store, 50, 50)
    with opened_catalog(str(warehouse)) as catalog:
        slow = LakeTable(IcebergTables(catalog).open("Orders"))
        copy(warehouse, store.root)
        run = LakeCopy(IcebergTables(catalog), source(store.root))
        run._tables["Orders"] = slow
        with pytest.raises(TableInUse, match="another process"):
            run.round()
    assert held(warehouse) == stored(store)


def test_rows_wait_in_bounded_memory(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 600)
    for topic in ("a", "b", "c"):
        add(store, 0, 30, topic=topic)
    with opened_catalog(str(warehouse)) as catalog:
        run = LakeCopy(
            IcebergTables(catalog),
            source(store.root),
            Limits(waiting_bytes=30_000, commit_bytes=1 << 40),
        )
        most = 0

        def watch(parts: Any, total: int) -> Any:
            nonlocal most
            for part in parts:
                yield part
                most = max(most, sum(t.waiting_bytes for t in run._tables.values()))

        run.round(watch)
        assert 0 < most <= 30_000
        assert run.copied.files > run.copied.commits == 4


def test_the_comparison_finds_what_is_missing_twice_or_changed(
    store: WrittenStore, warehouse: Path
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    add(store, 0, 100)
    copy(warehouse, store.root)
    with opened_catalog(str(warehouse)) as catalog:
        table = catalog.load_table("pocketmq.Orders")
        rows = table.scan().to_arrow()
        other = pc.if_else(pc.equal(rows.column("queueOffset"), 7), "other", rows.column("tags"))
        at = rows.schema.get_field_index("tags")
        rows = rows.set_column(at, "tags", other.cast(rows.schema.field("tags").type))
        first = rows.filter(pc.equal(rows.column("queueOffset"), 3)).slice(0, 1)
        rows = rows.filter(pc.not_equal(rows.column("queueOffset"), 5))
        rewrite(table, pa.concat_tables([rows, first]))
    found = check(warehouse, store.root)
    assert (found.missing, found.extra, found.different) == (3, 1, 3)
    assert found.compared == 94
    assert any("offset 5," in line for line in found.shown)
    assert any("different in tags" in line for line in found.shown)


def test_the_position_is_in_the_summary(store: WrittenStore, warehouse: Path) -> None:
    add(store, 0, 30)
    copy(warehouse, store.root)
    with tables(warehouse) as (catalog, _):
        snapshot = catalog.load_table("pocketmq.Orders").current_snapshot()
        assert snapshot is not None
        summary = snapshot.summary
        assert summary is not None
        found = Position.of_summary(summary)
        assert found is not None
        assert found.summary() == {key: summary[key] for key in (MARKS_KEY, HEADS_KEY)}
        assert {q: m.offset for q, m in found.of("Orders", "broker-a").items()} == {
            0: 10,
            1: 10,
            2: 10,
        }
        assert found.last_place("broker-a") == stored(store)[-1]["commitLogOffset"]


def test_a_warehouse_that_is_no_folder_needs_a_catalog() -> None:
    with pytest.raises(IllegalArgument, match="--catalog"):
        with opened_catalog("s3://bucket/lake"):
            pass


def test_fields_of_bodies_are_columns_that_may_grow(store: WrittenStore, warehouse: Path) -> None:
    def run(schema: str | None) -> None:
        body = None if schema is None else BodyColumns.of(schema)
        with opened_catalog(str(warehouse)) as catalog:
            LakeCopy(IcebergTables(catalog), source(store.root), body=body).round()

    def put(text: bytes) -> None:
        store.add([Message(topic="Orders", body=text)])

    put(b'{"id":1}')
    run(None)
    put(b'{"id":2,"sku":"a"}')
    run("id INT")
    put(b'{"id":3,"sku":"b","lines":[{"n":1}],"tags":"t"}')
    put(b"nope")
    run("id BIGINT, sku STRING, lines ARRAY<STRUCT<n: SMALLINT>>, tags STRING")
    rows = sorted(held(warehouse), key=lambda row: row["queueOffset"])
    names = ("id", "sku", "lines", "body_tags")
    # pyiceberg's reader shows a null list of structs as an empty one.
    assert [tuple(row[name] or None for name in names) for row in rows] == [
        (None, None, None, None),
        (2, None, None, None),
        (3, "b", [{"n": 1}], "t"),
        (None, None, None, None),
    ]
    assert [bool(row["_body_error"]) for row in rows] == [False, False, False, True]
    assert check(warehouse, store.root).compared == 4
    with pytest.raises(IllegalArgument, match="do not fit those of table"):
        run("id STRING")
