"""Queues are opened when they are used: a start does not cost more with their number."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pocketmq.files.layout import ENTRY
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import MessageStore
from pocketmq.store.log import descriptors, mapped_file
from pocketmq.store.queue import consume_queue_table
from pocketmq.store.store_lock import AbortFile, LastStop
from tests.store.stores import open_store, read_all, send

TOPICS, QUEUES = 60, 4
# The last MiB of the log, which each start checks, holds a third of the records.
BODY = b"x" * 12_000
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 8 << 20,
    "mapped_file_size_consume_queue": 40_000,
    "message_index_enable": False,
}


def name(number: int) -> str:
    return f"Topic{number:02d}"


def opened(root: Path) -> MessageStore:
    return open_store(root, **SIZES)


def fill(root: Path) -> None:
    store = opened(root)
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            send(store, name(number), queue_id, BODY)
    store.close()


def kill(store: MessageStore) -> None:
    """The process ends; what it wrote is in the page cache."""
    store.lock.release()
    store.index.close()
    store.commit_log.close()
    store.table.close()


def check_all(store: MessageStore, extra: int = 0) -> None:
    assert len(store.queues()) == TOPICS * QUEUES
    for topic, queue_id in store.queues():
        assert store.max_offset(topic, queue_id) == 1 + (extra if topic == name(0) else 0)
    assert [len(read_all(store, name(number), 1)) for number in (1, TOPICS - 1)] == [1, 1]


@pytest.mark.parametrize("killed", [False, True])
def test_a_start_opens_the_queues_of_the_last_records_only(tmp_path: Path, killed: bool) -> None:
    fill(tmp_path)
    store = opened(tmp_path)
    assert len(store.table.queues) < TOPICS * QUEUES // 2
    for queue_id in range(QUEUES):
        assert send(store, name(0), queue_id) == 1
    if killed:
        kill(store)
    else:
        store.close()
    store = opened(tmp_path)
    assert len(store.table.queues) < TOPICS * QUEUES // 2
    assert store.recovery.damages == []
    check_all(store, extra=1)
    store.close()


def test_after_a_power_cut_every_queue_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry behind the end of the log goes, in whatever queue it is, also when recovery is killed.

    One open is enough for a queue that no checked record names; a look at each is what such a start costs.
    """
    fill(tmp_path)
    file = tmp_path / "consumequeue" / name(0) / "2" / f"{0:020d}"
    with file.open("r+b") as queue:
        queue.seek(ENTRY.size)
        queue.write(ENTRY.pack(7 << 20, 200, 0))
    # As another boot of the machine, or a recovery that did not come to its end, leaves it.
    (tmp_path / "abort").write_text("4711")
    opens: Counter[str] = Counter()

    def open_file(path: str, flags: int, mode: int = 0o777) -> int:
        opens[path] += 1
        return descriptors.open_file(path, flags, mode)

    monkeypatch.setattr(mapped_file, "open_file", open_file)
    store = opened(tmp_path)
    assert store.recovery.entries_dropped == 1
    unnamed = [
        opens[queue.files.files[0].path]
        for queue in store.table.queues.values()
        if name(0) < queue.topic < name(TOPICS // 2)
    ]
    assert unnamed == [1] * (TOPICS // 2 - 1) * QUEUES
    kill(store)
    store = opened(tmp_path)
    assert len(store.table.queues) < TOPICS * QUEUES // 2
    check_all(store)
    store.close()


def test_a_copy_of_a_store_that_runs_is_looked_at_wholly(tmp_path: Path) -> None:
    """Its files are of different moments."""
    kill(opened(tmp_path))
    abort = tmp_path / "abort"
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.KILLED
    content = abort.read_text()
    abort.rename(tmp_path / "kept")
    abort.write_text(content)
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.UNKNOWN


def test_idle_queues_are_closed_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for those whose entries are not on the disk."""
    monkeypatch.setattr(consume_queue_table, "OPEN_KEPT", 20)
    monkeypatch.setattr(consume_queue_table, "_OPENED_MAX", 10)
    fill(tmp_path)
    store = opened(tmp_path)
    table = store.table
    check_all(store)
    assert len(table.queues) <= 40
    for number in range(TOPICS):
        assert send(store, name(number), 3) == 1
    assert len(table.queues) >= TOPICS
    assert sum(queue.files.files[-1].mapped for queue in table.queues.values()) <= 30
    assert store.flushing is not None
    store.flushing.flush_all_now()
    for _ in range(2):
        table.release_idle()
    assert len(table.queues) == 20
    assert all(store.max_offset(name(number), 3) == 2 for number in range(TOPICS))
    assert len(store.queues()) == TOPICS * QUEUES
    assert store.delete_topic(name(5)) == QUEUES
    assert store.queues(name(5)) == []
    assert not (tmp_path / "consumequeue" / name(5)).exists()
    store.close()


def test_files_of_closed_queues_are_deleted_with_the_log(tmp_path: Path) -> None:
    clock = ManualClock()
    sizes = SIZES | {
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 1_000,
    }
    store = open_store(tmp_path, clock, **sizes)
    for _ in range(120):
        send(store, "Old")
    for _ in range(200):
        send(store, "New", body=BODY)
    store.close()
    store = open_store(tmp_path, clock, **sizes)
    assert ("Old", 0) not in store.table.queues
    assert len(list((tmp_path / "consumequeue" / "Old" / "0").iterdir())) == 3
    for file in (tmp_path / "commitlog").iterdir():
        os.utime(file, (0, 0))
    assert store.delete_expired_files() == 2
    assert len(list((tmp_path / "consumequeue" / "Old" / "0").iterdir())) == 1
    assert store.max_offset("Old", 0) == 120
    store.close()
