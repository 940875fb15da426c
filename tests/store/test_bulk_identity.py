"""A plan goes to other hosts: what they find under its path must be the store that was planned."""

import pickle
import platform
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pocketmq import bulk
from pocketmq.bulk.archive import Archiver
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Partition
from tests.store.bulk_stores import Message, WrittenStore


def written(root: Path, name: str, count: int) -> WrittenStore:
    made = WrittenStore(root, log_file_size=4096)
    made.add(
        Message(body=f"{name} {i}".encode(), store_host=f"10.0.0.{len(name)}:10911")
        for i in range(count)
    )
    return made


def planned(root: Path) -> list[Partition]:
    everything = bulk.Positions(), bulk.Positions("latest")
    found = bulk.plan(
        [bulk.Root(str(root), "broker-a")], bulk.Topics(), *everything, bulk.Sizes(2000), LossRule()
    )
    return [pickle.loads(pickle.dumps(p)) for p in found]


def rows(partitions: list[Partition], loss: LossRule) -> int:
    read = bulk.Read(("body", "queueOffset"))
    batches: list[pa.RecordBatch] = [
        b for p in partitions for b in bulk.read_partition(p, read, loss)
    ]
    return sum(b.num_rows for b in batches)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("count", [200, 20])
def test_a_task_that_finds_another_brokers_store_fails(
    fail: bool, count: int, tmp_path: Path
) -> None:
    """It read 200 of 200 rows of the other one, under the planned broker's name."""
    root = tmp_path / "store"
    written(root, "a", 200)
    partitions = planned(root)
    shutil.rmtree(root)
    written(root, "other", count)
    wanted = rf"on host {platform.node()} the path {root} is not the store of broker broker-a"
    for one in partitions:
        with pytest.raises(bulk.OtherStore, match=wanted):
            rows([one], LossRule(fail))


def test_a_task_that_finds_another_brokers_archive_fails(tmp_path: Path) -> None:
    """Its files have the names, sizes and queues of the planned one."""
    root, archive = tmp_path / "store", tmp_path / "archive"
    written(root, "a", 200)
    assert list(Archiver(str(root), str(archive)).run())
    partitions = planned(archive)
    assert rows(partitions, LossRule()) > 100
    shutil.rmtree(root)
    shutil.rmtree(archive)
    written(root, "b", 200)
    assert list(Archiver(str(root), str(archive)).run())
    for one in partitions:
        with pytest.raises(
            bulk.OtherStore, match=rf"the path {archive} is not the store of broker"
        ):
            rows([one], LossRule(fail=False))


def test_a_task_that_finds_no_store_says_what_executors_need(tmp_path: Path) -> None:
    root = tmp_path / "store"
    written(root, "a", 20)
    partitions = planned(root)
    shutil.rmtree(root)
    with pytest.raises(bulk.OtherStore, match="Every executor must see the same files"):
        rows(partitions, LossRule(fail=False))


def test_a_store_that_grows_or_loses_its_oldest_files_is_still_the_one(tmp_path: Path) -> None:
    store = written(tmp_path / "store", "a", 200)
    partitions = planned(store.root)
    store.add(Message() for _ in range(200))
    assert rows(partitions, LossRule()) == 200
    store.log_path(0).unlink()
    loss = LossRule(fail=False)
    assert 100 < rows(partitions, loss) < 200
    assert loss.losses


def test_a_store_without_queues_is_checked_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.rmtree(written(root, "a", 100).root / "consumequeue")
    partitions = planned(root)
    assert rows(partitions, LossRule()) == 100
    shutil.rmtree(root)
    shutil.rmtree(written(root, "other", 100).root / "consumequeue")
    with pytest.raises(bulk.OtherStore):
        rows(partitions, LossRule())


def test_a_store_whose_newest_file_held_one_small_record_is_known_after_it_grew(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    made = WrittenStore(root, log_file_size=4096)
    made.add([Message(body=b"", properties=b"")])
    partitions = planned(root)
    made.add([Message(body=b"", properties=b"")])
    assert rows(partitions, LossRule()) == 1
