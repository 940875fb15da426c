"""What the tests of pocketmq.lake share: copies of stores, and the rows of tables by several readers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from pocketmq.bulk.columns.schema import schema_of
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Topics
from pocketmq.lake.catalog import NAMESPACE, existing_tables, opened_catalog
from pocketmq.lake.check import Check, Compared
from pocketmq.lake.columns import NAMES, file_schema
from pocketmq.lake.copy import LakeCopy, Limits
from pocketmq.lake.delta import DeltaTables
from pocketmq.lake.files import FileSource
from pocketmq.lake.iceberg import IcebergTables, write_file
from pocketmq.lake.partitions import pieces
from tests.store.bulk_stores import Message, WrittenStore, reference_rows, table_rows

# So small that a few hundred messages take several files and commits.
SMALL = Limits(waiting_bytes=20_000, commit_bytes=40_000)
DAY_MS = 86_400_000


def source(*paths: Path, **options: Any) -> FileSource:
    system = options.pop("system", False)
    topics = options.pop("topics", ())
    fail = options.pop("fail", True)
    return FileSource(
        [str(path) for path in paths],
        Topics(tuple(topics), system=system),
        LossRule(fail),
        **options,
    )


def copy(
    warehouse: Path, *paths: Path, limits: Limits | None = None, **options: Any
) -> dict[str, int]:
    """One run of `pocketmq lake`; returns the new rows of each table."""
    with opened_catalog(str(warehouse)) as catalog:
        run = LakeCopy(IcebergTables(catalog), source(*paths, **options), limits)
        run.round()
        return run.copied.rows


def copy_to_delta(
    warehouse: Path, *paths: Path, limits: Limits | None = None, **options: Any
) -> dict[str, int]:
    """The same with `--format delta`."""
    run = LakeCopy(DeltaTables(str(warehouse)), source(*paths, **options), limits)
    run.round()
    return run.copied.rows


def check(warehouse: Path, *paths: Path, **options: Any) -> Compared:
    with opened_catalog(str(warehouse)) as catalog:
        return Check(IcebergTables(catalog), source(*paths, **options)).run()


@contextmanager
def tables(warehouse: Path) -> Iterator[tuple[Catalog, list[str]]]:
    with opened_catalog(str(warehouse)) as catalog:
        yield catalog, [f"{NAMESPACE}.{name}" for name in existing_tables(catalog)]


def rows_by_pyiceberg(warehouse: Path) -> list[dict[str, Any]]:
    with tables(warehouse) as (catalog, names):
        found = [catalog.load_table(name).scan().to_arrow() for name in names]
    return [row for table in found for row in table_rows(table)]


def rows_by_deltalake(warehouse: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    found = [
        DeltaTable(path).to_pyarrow_table() for path in sorted((warehouse / NAMESPACE).iterdir())
    ]
    return [row for table in found for row in table_rows(table.drop_columns(["storeDay"]))]


def rows_by_duckdb(warehouse: Path) -> list[dict[str, Any]]:
    """The files of each table's snapshot, without pyiceberg's reader."""
    import duckdb

    rows: list[dict[str, Any]] = []
    with tables(warehouse) as (catalog, names), duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in names:
            files = [task.file.file_path for task in catalog.load_table(name).scan().plan_files()]
            query = f"SELECT {', '.join(NAMES)} FROM read_parquet({files})"
            rows += table_rows(connection.sql(query).to_arrow_table())
    return rows


def rewrite(table: Table, rows: pa.Table) -> None:
    """Replaces all rows, as another engine does: a snapshot without a position."""
    files = [task.file for task in table.scan().plan_files()]
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for file in files:
            snapshot.delete_data_file(file)
        schema = file_schema(table.schema())
        for partition, piece in pieces(table, rows.cast(schema_of(NAMES))):
            snapshot.append_data_file(write_file(table, schema, piece, partition))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: (r["brokerName"], r["commitLogOffset"], r["queueOffset"]))


def add(store: WrittenStore, first: int, count: int, topic: str = "Orders", **more: Any) -> None:
    store.add(
        Message(
            topic=topic,
            queue_id=i % 3,
            body=b"%d" % i * 20,
            properties=b"TAGS\x01t%d\x02KEYS\x01k%d\x02" % (i % 4, i),
            store_ms=1_700_000_000_000 + i * DAY_MS // 200,
            **more,
        )
        for i in range(first, first + count)
    )


def stored(store: WrittenStore) -> list[dict[str, Any]]:
    rows = reference_rows(store.root, "broker-a")
    for row in rows:
        del row["propertiesRaw"]
    return in_order(rows)


def held(warehouse: Path) -> list[dict[str, Any]]:
    return in_order(rows_by_pyiceberg(warehouse))
