"""Stores with many queues: what a plan opens, keeps and sends to the tasks."""

import os
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest

from pocketmq import bulk
from pocketmq.bulk.offsets import LossRule, Offsets, QueueKey, each, lookup, store_at
from pocketmq.bulk.partition import BEFORE, BEHIND, Partition, QueueRange
from pocketmq.bulk.planning.planner import Planner
from tests.store.bulk_stores import Message, WrittenStore

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


def test_a_partition_of_2000_queues_that_reach_over_it_stays_small() -> None:
    """Only the ends of queues that end there are numbers: 2,000 of them cannot be packed so small."""
    queues = tuple(QueueRange(f"Topic{i // 8}", i % 8, BEFORE, BEHIND) for i in range(2000))
    one = Partition(bulk.Root("/data/broker-a/store", "broker-a"), ((0, 1 << 28),), queues)
    packed = pickle.dumps(one)
    assert pickle.loads(packed) == one
    assert len(packed) <= 2048


@pytest.fixture
def long_queues(tmp_path: Path) -> tuple[WrittenStore, Offsets, Offsets]:
    """72 queues of about 30 messages over a dozen files, and offsets somewhere in them."""
    chance = random.Random(7)
    store = WrittenStore(
        tmp_path / "broker-a" / "store", log_file_size=1 << 15, queue_file_entries=8
    )
    written = Counter[int]()
    messages = []
    for number in (chance.randrange(72) for _ in range(72 * 30)):
        written[number] += 1
        messages.append(Message(topic=f"Topic{number // 8}", queue_id=number % 8, body=b"x" * 50))
    store.add(messages)
    starts: Offsets = {}
    ends: Offsets = {}
    for number, count in written.items():
        key = QueueKey(f"Topic{number // 8}", "broker-a", number % 8)
        store_at(starts, key, chance.randrange(count // 3))
        store_at(ends, key, count - chance.randrange(count // 3))
    return store, starts, ends


def test_queues_that_reach_over_partitions_are_read_once(
    long_queues: tuple[WrittenStore, Offsets, Offsets],
) -> None:
    store, starts, ends = long_queues
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(), LossRule())
    partitions = planner.partitions(starts, ends, bulk.Sizes(1 << 15))
    bounds = [Counter((q.start == BEFORE, q.end == BEHIND) for q in p.queues) for p in partitions]
    assert any(set(one) == {(True, True)} for one in bounds)
    wanted = sorted(
        (*key[::2], offset)
        for key, start in each(starts)
        for offset in range(start, lookup(ends, key) or 0)
    )
    # Tags codes are in the index alone; bodies may be read by the log.
    for column in ("tagsCode", "body"):
        read = bulk.Read(("topic", "queueId", "queueOffset", column))
        rows = [
            tuple(row.values())[:3]
            for one in partitions
            for batch in bulk.read_partition(pickle.loads(pickle.dumps(one)), read, LossRule())
            for row in batch.to_pylist()
        ]
        assert sorted(rows) == wanted


def test_index_files_that_are_gone_are_a_loss_where_a_queue_reaches_over_a_partition(
    long_queues: tuple[WrittenStore, Offsets, Offsets],
) -> None:
    store, starts, ends = long_queues
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(), LossRule())
    partitions = planner.partitions(starts, ends, bulk.Sizes(1 << 15))
    read = bulk.Read(("queueOffset", "tagsCode"))

    def losses(one: Partition) -> list[str]:
        loss = LossRule(fail=False)
        list(bulk.read_partition(one, read, loss))
        return loss.losses

    middle = partitions[len(partitions) // 2]
    assert not losses(middle)
    files = sorted((store.root / "consumequeue/Topic0/0").iterdir())
    last = files.pop()
    kept = last.rename(last.with_suffix(".gone"))
    for file in files[2:]:
        file.unlink()
    assert any(
        "topic Topic0, queue 0: index files of offsets position" in t for t in losses(middle)
    )
    kept.rename(last)
    for file in files[:2]:
        file.unlink()
    assert any(
        "topic Topic0, queue 0: index files of offsets position" in t for t in losses(middle)
    )


def test_partitions_of_a_topic_that_became_busy_late_are_alike(tmp_path: Path) -> None:
    """One in a hundred records of the log's first half, all of its second."""
    store = WrittenStore(
        tmp_path / "broker-a" / "store", log_file_size=1 << 17, queue_file_entries=30_000
    )
    store.add(
        Message(
            topic="Late" if i >= 2000 or i % 100 == 0 else "Other", queue_id=i % 4, body=b"x" * 100
        )
        for i in range(4000)
    )
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(("Late",)), LossRule())
    starts, ends = planner.starts(bulk.Positions()), planner.ends(bulk.Positions("latest"))
    step = 40_000
    partitions = planner.partitions(starts, ends, bulk.Sizes(step))
    read = bulk.Read(("storeSize",))
    sizes = [
        sum(
            sum(b.column("storeSize").to_pylist()) for b in bulk.read_partition(p, read, LossRule())
        )
        for p in partitions
    ]
    assert sum(sizes) == pytest.approx(2020 * 203, rel=0.1)
    assert max(sizes) <= 1.5 * step
    assert len(partitions) <= 2 * sum(sizes) / step
