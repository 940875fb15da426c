"""Stores that real brokers wrote, as Iceberg tables: the rows of their manifests, column by column."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.lake.check import Check
from pocketmq.lake.delta import DeltaTables
from pocketmq.model.names import SCHEDULE_TOPIC
from tests.lake.lakes import (
    check,
    copy,
    copy_to_delta,
    in_order,
    rows_by_deltalake,
    rows_by_duckdb,
    rows_by_pyiceberg,
    source,
)
from tests.store.bulk_stores import GOLDEN_NAMES, index_entries, unpack
from tests.store.test_bulk_golden import RECOVERED, TORN, WALKED, expected

Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: unpack(name, folder / name) for name in GOLDEN_NAMES}


@pytest.fixture(scope="module")
def warehouse(roots: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stores in one warehouse, each as a broker of its name."""
    folder = tmp_path_factory.mktemp("warehouse")
    names = {str(root): name for name, root in roots.items()}
    copy(folder, *roots.values(), broker_names=names, system=True, fail=False)
    return folder


def by_store(rows: list[dict[str, Any]]) -> dict[str, dict[Place, dict[str, Any]]]:
    found: dict[str, dict[Place, dict[str, Any]]] = {name: {} for name in GOLDEN_NAMES}
    for row in rows:
        place = (row["topic"], row["queueId"], row["queueOffset"])
        assert place not in found[row["brokerName"]]
        found[row["brokerName"]][place] = row
    return found


def manifest_of(name: str) -> dict[Place, dict[str, Any]]:
    """What a store should hold. Of a log without its queues there is no manifest but the whole store's."""
    source = name.replace(".clean-rebuild", ".clean").replace(".crash-rebuild", ".crash")
    source = source.replace(".noqueues", ".clean")
    return expected(source if name in WALKED and source in GOLDEN_NAMES else name)


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    import hashlib

    body = row["body"]
    return row | {
        "body": (len(body), hashlib.sha256(body).hexdigest()), "brokerName": "golden-a",
    }  # fmt: skip


@pytest.fixture(scope="module")
def held(warehouse: Path) -> list[dict[str, Any]]:
    return rows_by_pyiceberg(warehouse)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_recorded_store_becomes_the_rows_of_its_manifest(
    name: str, roots: dict[str, Path], held: list[dict[str, Any]]
) -> None:
    found, wanted = by_store(held)[name], manifest_of(name)
    if name in WALKED:
        end = max(row["commitLogOffset"] for row in found.values())
        wanted = {k: v for k, v in wanted.items() if v["commitLogOffset"] <= end}
    if name in RECOVERED:
        # Recovery cut the log at a bad checksum; a reader has what lies behind it, too.
        assert wanted.keys() <= found.keys()
    else:
        assert wanted.keys() == found.keys()
    indexed = {place for place, _, _ in index_entries(roots[name])}
    for place, judge in wanted.items():
        row = comparable(found[place])
        if row["commitLogOffset"] not in indexed and row["topic"] == SCHEDULE_TOPIC:
            judge = judge | {"tagsCode": None}
        if name in RECOVERED and row["bodyCrc"] != judge["bodyCrc"]:
            continue
        assert row == judge
    assert name in TORN or found


def test_duckdb_reads_the_same_rows(warehouse: Path, held: list[dict[str, Any]]) -> None:
    assert in_order(rows_by_duckdb(warehouse)) == in_order(held)


def test_delta_tables_hold_the_same_rows(
    roots: dict[str, Path], held: list[dict[str, Any]], tmp_path: Path
) -> None:
    names = {str(root): name for name, root in roots.items()}
    options: dict[str, Any] = {"broker_names": names, "system": True, "fail": False}
    copy_to_delta(tmp_path, *roots.values(), **options)
    assert in_order(rows_by_deltalake(tmp_path)) == in_order(held)
    assert not copy_to_delta(tmp_path, *roots.values(), **options)
    found = Check(DeltaTables(str(tmp_path)), source(*roots.values(), **options)).run()
    assert found.is_equal, found
    assert found.compared == len(held)


@pytest.mark.parametrize(
    "name", ["v550-main.clean", "v497-main.crash-cq-behind", "v497-retain.noqueues"]
)
def test_the_comparison_with_a_store_finds_nothing(
    name: str, warehouse: Path, roots: dict[str, Path], held: list[dict[str, Any]]
) -> None:
    found = check(warehouse, roots[name], broker_names=name, system=True)
    assert found.is_equal, found
    assert found.compared == len(by_store(held)[name])
    assert (found.waiting, found.older) == (0, 0)


def test_a_second_copy_adds_nothing(warehouse: Path, roots: dict[str, Path]) -> None:
    names = {str(root): name for name, root in roots.items()}
    assert not copy(warehouse, *roots.values(), broker_names=names, system=True, fail=False)
