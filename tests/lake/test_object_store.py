"""Warehouses in an object store: moto speaks S3 on this machine; and one that fsspec writes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from pocketmq.lake.check import Check
from pocketmq.lake.copy import LakeCopy
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.lake.maintain import Upkeep
from tests.kit.object_store import Bucket, object_store
from tests.lake.lakes import SMALL, add, in_order, source, stored
from tests.store.bulk_stores import WrittenStore, table_rows

BEFORE_ALL = -(1 << 45)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with object_store() as made:
        yield made


def lake(said: dict[str, str], *words: str) -> str:
    """What `pocketmq lake` prints. said: by the environment."""
    answer = subprocess.run(
        [sys.executable, "-m", "pocketmq.cli", "lake", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | said,
    )
    assert not answer.returncode, answer.stderr
    return answer.stdout


def check_warehouse(catalog: Catalog, warehouse: str, store: WrittenStore) -> None:
    """What a copy has begun is continued, merged, expired and compared."""
    copy = LakeCopy(IcebergTables(catalog), source(store.root), SMALL)
    for first in (100, 300):
        add(store, first, 200)
        copy.round()
    table = catalog.load_table("pocketmq.Orders")
    assert table.location().startswith(warehouse)
    before = len(list(table.scan().plan_files()))
    done = copy.maintain(Upkeep(merge=True, keep_ms=BEFORE_ALL, few=1, unnamed_ms=BEFORE_ALL))
    assert done.merged
    assert done.expired
    table.refresh()
    assert len(list(table.scan().plan_files())) == before - done.merged + done.into
    assert in_order(table_rows(table.scan().to_arrow())) == stored(store)
    assert LakeCopy(IcebergTables(catalog), source(store.root)).round() == 0
    found = Check(IcebergTables(catalog), source(store.root)).run()
    assert found.is_equal
    assert found.compared == 500


def test_a_warehouse_in_s3(bucket: Bucket, store: WrittenStore, tmp_path: Path) -> None:
    """The command with a catalog of the environment, as docs/lake.md has it; then what it has begun."""
    add(store, 0, 100)
    place = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "s3.endpoint": bucket.endpoint,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    said = {
        f"PYICEBERG_CATALOG__S3LAKE__{key.replace('.', '__').replace('-', '_').upper()}": value
        for key, value in place.items()
    }
    words = [str(store.root), "s3://lake/warehouse", "--catalog", "s3lake"]
    assert "pocketmq.Orders: 100 rows" in lake(said, *words)
    catalog = load_catalog("s3lake", warehouse="s3://lake/warehouse", **place)
    check_warehouse(catalog, "s3://lake/warehouse", store)


def test_a_warehouse_that_fsspec_writes(store: WrittenStore, tmp_path: Path) -> None:
    """No file that a killed process left is deleted there, since fsspec's are not listed."""
    add(store, 0, 100)
    place = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    catalog = load_catalog("fsspec", warehouse=f"file://{tmp_path}/warehouse", **place)
    check_warehouse(catalog, f"file://{tmp_path}/warehouse", store)


def test_delta_tables_in_s3(bucket: Bucket, store: WrittenStore) -> None:
    """In processes of their own: deltalake keeps Python waiting, and the bucket is served by this one."""
    said = {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    words = [str(store.root), "s3://lake/delta", "--format", "delta"]
    for first in (0, 200):
        add(store, first, 200)
        assert "pocketmq.Orders: 200 rows" in lake(said, *words)
    found = json.loads(lake(said, *words, "--check", "--json"))
    assert (found["compared"], found["missing"], found["extra"], found["waiting"]) == (400, 0, 0, 0)
