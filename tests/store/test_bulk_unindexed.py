"""Stores of brokers that were killed: what the log holds and the ConsumeQueues do not."""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq import bulk
from pocketmq.bulk.planning.tail_records import is_held
from pocketmq.bulk.store import StoreSnapshot
from tests.store.bulk_stores import Message, WrittenStore

START_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    """Three queues, 150 messages over several log files; the index of queue 1 lacks its last 15."""
    made = WrittenStore(tmp_path / "broker-a" / "store", log_file_size=4096)
    made.add(
        Message(queue_id=i % 3, body=b"%d" % i, store_ms=START_MS + i * 100) for i in range(150)
    )
    cut_index(made, 1, 35)
    (made.root / "abort").touch()
    return made


def cut_index(store: WrittenStore, queue_id: int, left: int) -> None:
    path = store.root / "consumequeue" / "T" / str(queue_id) / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(left * 20)
        file.write(bytes((50 - left) * 20))


def bodies(store: WrittenStore, **options: Any) -> list[int]:
    table = bulk.scan(str(store.root), columns="body", **options).read_all()
    return sorted(int(b) for b in table.column("body").to_pylist())


def test_messages_beyond_a_killed_brokers_index_are_read(
    store: WrittenStore,
) -> None:
    assert bodies(store) == list(range(150))


def test_offsets_and_times_reach_into_what_is_not_indexed(store: WrittenStore) -> None:
    offsets = {"T": {"broker-a": {0: 50, 1: 40, 2: 50}}}
    assert bodies(store, starting_offsets=offsets) == [i * 3 + 1 for i in range(40, 50)]
    assert bodies(store, starting_offsets=offsets, ending_offsets={"T": {"broker-a": {1: 42}}}) == [
        121,
        124,
    ]
    late = START_MS + 14_000
    assert bodies(store, starting_ms=late) == list(range(140, 150))
    assert bodies(store, ending_ms=late) == list(range(140))
    assert bodies(store, tags=("a",)) == list(range(150))
    assert bodies(store, tags=("b",)) == []


def test_a_queue_that_was_never_indexed_is_read(store: WrittenStore) -> None:
    """Its folder is made by the dispatch that the broker did not live to do."""
    store.add(
        Message(topic="New", body=b"%d" % i, store_ms=START_MS + 20_000) for i in range(900, 905)
    )
    for path in sorted((store.root / "consumequeue" / "New").glob("*/*")):
        path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()
    assert bodies(store, topics=("New",)) == list(range(900, 905))
    assert bodies(store) == [*range(150), *range(900, 905)]


def test_a_gap_between_index_and_log_is_a_loss(store: WrittenStore) -> None:
    """The records of the gap are older than what the checkpoint says is in the queues."""
    positions = positions_of(store)
    for i in range(106, 120, 3):
        # A record of a rolled-back transaction stands in no queue.
        store.patch(positions[i] + 36, (0xC).to_bytes(4, "big"))
    with pytest.raises(bulk.DataLoss, match=r"queue 1: offsets 35\.\.40 are neither"):
        bodies(store)
    assert bodies(store, fail_on_data_loss=False) == sorted(
        i for i in range(150) if i % 3 != 1 or i < 105
    )


def positions_of(store: WrittenStore) -> list[int]:
    table = bulk.scan(str(store.root), columns="commitLogOffset").read_all()
    return sorted(table.column("commitLogOffset").to_pylist())


def keep_in_rocksdb(store: WrittenStore) -> None:
    """5.x with storeType=defaultRocksDB has its database where queues are folders otherwise."""
    for name in ("CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "000011.sst"):
        (store.root / "consumequeue" / name).write_bytes(b"MANIFEST-000005\n")


def test_a_store_with_its_queues_in_rocksdb_is_walked(store: WrittenStore) -> None:
    shutil.rmtree(store.root / "consumequeue" / "T")
    keep_in_rocksdb(store)
    assert bodies(store) == list(range(150))
    assert bodies(
        store, topics=("T",), starting_offsets={"T": {"broker-a": {0: 49, 1: 49, 2: 49}}}
    ) == [147, 148, 149]


def test_old_queue_files_do_not_hide_later_messages(store: WrittenStore) -> None:
    """The broker was stopped cleanly, and wrote its last entries into RocksDB."""
    (store.root / "abort").unlink()
    keep_in_rocksdb(store)
    assert bodies(store) == list(range(150))


def test_a_store_that_was_stopped_is_read_by_its_index(store: WrittenStore) -> None:
    (store.root / "abort").unlink()
    assert len(bodies(store)) == 135


def test_a_store_that_a_broker_holds_is_read_by_its_index(store: WrittenStore) -> None:
    """And the lock is left alone: closing the file would drop a lock of this process."""
    root = StoreSnapshot(bulk.Root(str(store.root), "broker-a"))
    lock = os.open(store.root / "lock", os.O_RDWR | os.O_CREAT)
    try:
        assert not is_held(root)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        assert is_held(root)
        assert len(bodies(store)) == 135
        assert is_held(root)
    finally:
        os.close(lock)
    assert not is_held(root)


def test_bytes_left_behind_a_truncation_are_not_read(store: WrittenStore) -> None:
    """A record of the same size fell on the place of an older one, which the next one stands behind."""
    store.add([Message(queue_id=1, body=b"150", store_ms=START_MS)])
    cut_index(store, 1, 35)
    assert bodies(store) == list(range(150))
