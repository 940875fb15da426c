"""`pocketmq lake --compact --keep-snapshots` killed with -9 at each step: every message is there once."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.lake.check import Check
from pocketmq.lake.delta import DeltaTables
from tests.lake.lakes import check, in_order, rows_by_deltalake, rows_by_pyiceberg, source
from tests.store.bulk_stores import Message, WrittenStore, reference_rows

#: Rounds; each kills one run. `POCKETMQ_LAKE_KILLS=100` for as many as the promise is about.
KILLS = int(os.environ.get("POCKETMQ_LAKE_KILLS", "12"))
CHILD = Path(__file__).with_name("killed_child.py")
ROOT = Path(__file__).parents[2]
TOPICS = ["Orders", "%RETRY%g", "a-b"]


class Runs:
    """The process that runs and kills copies."""

    def __init__(self, store: Path, warehouse: Path, table_format: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), str(store), str(warehouse), table_format],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def run(self, last: int) -> int:
        """Returns the steps that a run made, -9 if it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{last}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(params=["iceberg", "delta"])
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runs(store: WrittenStore, tmp_path: Path, table_format: str) -> Iterator[Runs]:
    running = Runs(store.root, tmp_path / "warehouse", table_format)
    yield running
    running.close()


def add(store: WrittenStore, first: int, count: int, chance: random.Random) -> None:
    store.add(
        Message(
            topic=chance.choice(TOPICS),
            queue_id=chance.randrange(3),
            body=b"%d" % i * 30,
            store_ms=1_700_000_000_000 + i * 600_000,
        )
        for i in range(first, first + count)
    )


def stored(store: WrittenStore) -> list[dict[str, Any]]:
    rows = reference_rows(store.root, "broker-a")
    for row in rows:
        del row["propertiesRaw"]
    return rows


def test_each_message_is_there_once_whichever_steps_are_killed(
    store: WrittenStore, runs: Runs, table_format: str, tmp_path: Path
) -> None:
    """Messages arrive between the runs, and in the middle a topic is deleted and made again."""
    chance = random.Random(45)
    deleted: list[dict[str, Any]] = []
    made, killed, steps = 0, 0, {"iceberg": 90, "delta": 24}[table_format]
    # Steps as far apart as the rounds allow, so that few rounds come to every kind of step, too.
    order = [1 + (number * 13 + number // 7) % steps for number in range(KILLS)]
    for number, step in enumerate(order):
        add(store, made, 40, chance)
        made += 40
        killed += runs.run(step) == -9
        if number == KILLS // 2:
            assert runs.run(0) > 0
            deleted = [row for row in stored(store) if row["topic"] == "Orders"]
            shutil.rmtree(store.root / "consumequeue" / "Orders")
            store.offsets = {k: v for k, v in store.offsets.items() if k[0] != "Orders"}
    assert killed >= KILLS // 2
    assert runs.run(0) > 0
    warehouse = tmp_path / "warehouse"
    read = {"iceberg": rows_by_pyiceberg, "delta": rows_by_deltalake}[table_format]
    found = in_order(read(warehouse))
    assert found == in_order(deleted + stored(store))
    assert len(found) == made
    if table_format == "iceberg":
        compared = check(warehouse, store.root)
    else:
        compared = Check(DeltaTables(str(warehouse)), source(store.root)).run()
    assert compared.is_equal, compared
    assert (compared.compared, compared.waiting) == (made - len(deleted), 0)
