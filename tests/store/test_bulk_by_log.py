"""Partitions of many short queues: read by the log alone, with the rows that the queues point to."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq import bulk
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Partition
from pocketmq.bulk.planning.planner import Planner
from tests.store.bulk_stores import Message, WrittenStore, table_rows

QUEUES = 160
COLUMNS = ("topic", "queueId", "queueOffset", "body", "commitLogOffset", "storeSize")


def message(number: int, **given: Any) -> Message:
    return Message(
        topic=f"Topic{number % QUEUES // 8}",
        queue_id=number % 8,
        body=b"%d" % number * 20,
        **given,
    )


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    """Several log files; between the messages half messages that no queue points to."""
    made = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=1 << 17)
    for number in range(QUEUES * 5):
        made.add([message(number)])
        if number % 50 == 0:
            made.add([message(number, indexed=False, sys_flag=0x4)])
    return made


def plan(store: WrittenStore, step: int = 40_000) -> list[Partition]:
    planner = Planner([bulk.Root(str(store.root), "broker-a")], bulk.Topics(), LossRule())
    starts, ends = planner.starts(bulk.Positions()), planner.ends(bulk.Positions("latest"))
    return planner.partitions(starts, ends, bulk.Sizes(step))


def rows(partitions: list[Partition], *, tags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    read = bulk.Read(COLUMNS, bulk.Filters(tags=tags))
    return [
        row
        for one in partitions
        for batch in bulk.read_partition(one, read, LossRule())
        for row in table_rows(batch)
    ]


def by_queues(partitions: list[Partition]) -> list[Partition]:
    from dataclasses import replace

    return [replace(one, by_log=False) for one in partitions]


def test_short_queues_are_not_opened_by_tasks(
    store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = plan(store)
    assert len(partitions) > 3
    assert all(one.by_log for one in partitions)
    wanted = rows(by_queues(partitions))
    assert len(wanted) == QUEUES * 5
    opened: list[str] = []
    real = os.open

    def counted(path: str, flags: int) -> int:
        opened.append(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", counted)
    assert rows(partitions) == wanted
    assert not [path for path in opened if "consumequeue" in path]
    assert rows(partitions, tags=("a",)) == wanted
    assert rows(partitions, tags=("b",)) == []


def test_a_topic_that_was_made_again_shows_its_new_messages_only(store: WrittenStore) -> None:
    """Its old records are still in the log, with the same offsets."""
    shutil.rmtree(store.root / "consumequeue" / "Topic3")
    for queue_id in range(8):
        store.offsets.pop(("Topic3", queue_id))
    store.add(message(number) for number in range(24, 32))
    partitions = plan(store, step=1 << 30)
    found = [row for row in rows(partitions) if row["topic"] == "Topic3"]
    assert [row["queueOffset"] for row in found] == [0] * 8
    assert rows(partitions) == rows(by_queues(partitions))


def test_damage_inside_of_a_partition_is_met_by_the_queues(store: WrittenStore) -> None:
    """The walk cannot continue behind it; the queues can."""
    partitions = plan(store)
    first = rows(partitions)
    hurt = first[len(first) // 2]
    store.patch(hurt["commitLogOffset"], b"\0\0\0\1")
    with pytest.raises(bulk.DataLoss):
        rows(partitions)
    loss = LossRule(fail=False)
    read = bulk.Read(COLUMNS)
    left = sum(b.num_rows for p in partitions for b in bulk.read_partition(p, read, loss))
    assert left == len(first) - 1
    assert len(loss.losses) == 1


def test_long_queues_are_read_by_their_entries(tmp_path: Path) -> None:
    store = WrittenStore(tmp_path / "broker-a" / "store")
    store.add(message(number % 16) for number in range(500))
    assert not any(one.by_log for one in plan(store))
