"""Stores with many queues: what a plan opens, keeps and sends to the tasks."""

import os
import pickle
import random
from pathlib import Path

import pytest
from tests.store.bulk_stores import Message, WrittenStore

from pocketmq import bulk
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Partition, QueueRange
from pocketmq.bulk.planner import Planner

QUEUES = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> WrittenStore:
    """Queues of RocketMQ's size (300,000 entries a file, sparse) with three messages each."""
    made = WrittenStore(
        tmp_path_factory.mktemp("broker-a") / "store",
        log_file_size=1 << 18,
        queue_file_entries=300_000,
    )
    made.add(
        Message(topic=f"Topic{i % QUEUES // 8}", queue_id=i % 8, body=b"x" * 50)
        for i in range(QUEUES * 3)
    )
    return made


def planned(store: WrittenStore) -> tuple[Planner, list[Partition]]:
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(), LossRule())
    starts, ends = planner.starts(bulk.Positions()), planner.ends(bulk.Positions("latest"))
    return planner, planner.partitions(starts, ends, bulk.Sizes(1 << 14))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """[files opened, reads] of fetch."""
    counts = [0, 0]
    real_open, real_pread = os.open, os.pread

    def counted_open(path: str, flags: int) -> int:
        counts[0] += 1
        return real_open(path, flags)

    def counted_pread(descriptor: int, size: int, at: int) -> bytes:
        counts[1] += 1
        return real_pread(descriptor, size, at)

    monkeypatch.setattr(os, "open", counted_open)
    monkeypatch.setattr(os, "pread", counted_pread)
    return counts


def test_a_plan_looks_once_into_a_small_queue_and_keeps_no_file_and_no_map(
    store: WrittenStore, looks: list[int]
) -> None:
    """A map and a binary search for each of 200,000 queues took minutes and gigabytes."""
    before = len(os.listdir("/proc/self/fd"))
    planner, partitions = planned(store)
    opened, reads = looks
    assert len(planner.bounds) == QUEUES
    assert opened <= QUEUES + 20
    # Beside the queue: the last record of each.
    assert reads <= 2 * QUEUES + 20
    # Of the log a few files are kept open, to look at records.
    assert len(os.listdir("/proc/self/fd")) <= before + 10
    assert "consumequeue" not in Path("/proc/self/maps").read_text()
    read = bulk.Read(("queueOffset",))
    assert len(partitions) > 5
    assert sum(
        b.num_rows for p in partitions for b in bulk.read_partition(p, read, LossRule())
    ) == (3 * QUEUES)


def test_a_partition_stays_small_on_its_way(store: WrittenStore) -> None:
    _, partitions = planned(store)
    for one in partitions:
        packed = pickle.dumps(one)
        assert len(packed) <= 2048
        assert pickle.loads(packed) == one


def test_a_partition_of_2000_queues_anywhere_in_long_queues_is_packed() -> None:
    seed = 7
    chance = random.Random(seed)
    queues = tuple(
        QueueRange(f"Topic{i // 8}", i % 8, start, start + chance.randrange(100_000), i == 5)
        for i in range(2000)
        for start in (chance.randrange(1 << 40),)
    )
    one = Partition(bulk.Root("/data/broker-a/store", "broker-a"), ((0, 1 << 28),), queues)
    packed = pickle.dumps(one)
    assert pickle.loads(packed) == one
    assert len(packed) < 22_000


def test_partitions_of_a_topic_that_became_busy_late_are_alike(tmp_path: Path) -> None:
    """One in a hundred records of the log's first half, all of its second."""
    store = WrittenStore(
        tmp_path / "broker-a" / "store", log_file_size=1 << 18, queue_file_entries=30_000
    )
    store.add(
        Message(
            topic="Late" if i >= 5000 or i % 100 == 0 else "Other", queue_id=i % 4, body=b"x" * 100
        )
        for i in range(10_000)
    )
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(("Late",)), LossRule())
    starts, ends = planner.starts(bulk.Positions()), planner.ends(bulk.Positions("latest"))
    step = 100_000
    partitions = planner.partitions(starts, ends, bulk.Sizes(step))
    read = bulk.Read(("storeSize",))
    sizes = [
        sum(
            sum(b.column("storeSize").to_pylist()) for b in bulk.read_partition(p, read, LossRule())
        )
        for p in partitions
    ]
    assert sum(sizes) == pytest.approx(5050 * 203, rel=0.1)
    assert max(sizes) <= 1.5 * step
    assert len(partitions) <= 2 * sum(sizes) / step
