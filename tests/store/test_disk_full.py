"""A disk without room (R9): refused with a clear text, nothing lost or torn, and it recovers by itself."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import encode_batch
from pocketmq.store import DiskFull
from tests.store.stores import (
    HOST,
    Arrivals,
    Tags,
    open_store,
    read_all,
    running_store,
    send,
    told_store,
)


class FullDisk:
    """posix_fallocate and file creation on a disk with `left` bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self._fallocate = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self._reserve)

    def _reserve(self, descriptor: int, offset: int, size: int) -> None:
        if self.left is not None:
            if size > self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= size
        self._fallocate(descriptor, offset, size)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


def fill(send_one: Callable[[], object]) -> int:
    """Send until it is refused. Returns: how many were taken."""
    for count in range(100_000):
        try:
            send_one()
        except DiskFull:
            return count
    raise AssertionError("the disk never got full")


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path, disk: FullDisk) -> None:
    """R9: what was taken is there, what was refused is not, and reading works."""
    store = open_store(tmp_path)
    send(store)
    disk.left = 100_000
    taken = fill(lambda: send(store, body=b"x" * 500))
    assert taken > 10
    assert len(read_all(store)) == 1 + taken
    assert store.read("Topic", 0, 0, 32).count == 32
    disk.left = None
    assert send(store) == 1 + taken
    store.close()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path)
    assert store.recovery.damages == []
    assert len(read_all(store)) == 2 + taken
    store.close()


def test_no_room_for_a_queue_file_leaves_the_log_unchanged(tmp_path: Path, disk: FullDisk) -> None:
    """The entry's room is made before the record is written."""
    store = open_store(tmp_path)
    send(store)
    end = store.commit_log_max_position
    disk.left = 0
    with pytest.raises(DiskFull):
        send(store, "Other")
    with pytest.raises(DiskFull):
        store.append_batch("Third", 0, encode_batch([(0, b"a", b"")] * 3), b"", 0, 1, HOST)
    assert store.commit_log_max_position == end
    disk.left = None
    assert send(store, "Other") == 0
    store.close()


def test_batches_are_taken_as_a_whole_or_not_at_all(tmp_path: Path, disk: FullDisk) -> None:
    """R9."""
    store = open_store(tmp_path)
    batch = encode_batch([(0, b"x" * 100, b"")] * 40)
    disk.left = 200_000
    taken = fill(lambda: store.append_batch("Topic", 0, batch, b"", 0, 1, HOST))
    assert len(read_all(store)) == taken * 40 == store.max_offset("Topic", 0)
    disk.left = None
    store.append_batch("Topic", 0, batch, b"", 0, 1, HOST)
    assert len(read_all(store)) == (taken + 1) * 40
    store.close()


def test_the_index_waits_for_room_and_then_catches_up(tmp_path: Path, disk: FullDisk) -> None:
    """Without an index a message is a message all the same."""
    store = open_store(
        tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000
    )
    send(store)
    store.query_by_key("Topic", "none", 1, 0, 1)
    disk.left = 0
    positions = []
    for number in range(50):
        key = b"KEYS\x01k%d" % number
        positions.append(store.append("Topic", 0, b"", key, 0, 0, 1, HOST).position)
    assert store.query_by_key("Topic", "k7", 9, 0, 1 << 62).records == []
    assert store.dispatch_behind_size > 0
    disk.left = None
    found = store.query_by_key("Topic", "k7", 9, 0, 1 << 62).records
    assert len(found) == 1
    assert store.dispatch_behind_size == 0
    store.close()


async def test_appends_are_refused_above_the_disk_warning_level(tmp_path: Path) -> None:
    """disk.md 16: diskSpaceWarningLevelRatio."""
    async with running_store(tmp_path) as store:
        retention = store.retention
        assert retention is not None
        retention.measure_disk_use = lambda path: 0.95
        retention.step()
        assert not store.writable
        with pytest.raises(DiskFull, match="95% used"):
            send(store)
        retention.measure_disk_use = lambda path: 0.5
        retention.step()
        assert send(store) == 0


def test_a_fresh_store_is_small(tmp_path: Path) -> None:
    """Files have their full length and almost no blocks: defaults, one message in each of 20 queues."""
    from pocketmq.remoting.clock import ManualClock
    from pocketmq.store import MessageStore, StoreConfig

    config = StoreConfig(store_path_root_dir=str(tmp_path))
    store = MessageStore(config, clock=ManualClock(), store_host=HOST)
    store.open()
    for queue_id in range(20):
        store.append("Topic", queue_id, b"x", b"KEYS\x01k", 0, 0, 1, HOST)
    store.query_by_key("Topic", "k", 1, 0, 1)
    store.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 1 << 30
    assert sum(path.stat().st_blocks * 512 for path in files) < 40 << 20


def test_no_room_for_the_extension_leaves_the_log_unchanged(tmp_path: Path, disk: FullDisk) -> None:
    """enableConsumeQueueExt: its room too is made before the record is written."""
    arrivals = Arrivals()
    arrivals.bit_map_of = lambda topic, properties: b"\x01" * 14
    store = told_store(
        tmp_path,
        arrivals,
        enable_consume_queue_ext=True,
        mapped_file_size_consume_queue_ext=4096,
    )
    for number in range(150):
        send(store, tag=f"tag{number}")
    end = store.commit_log_max_position
    disk.left = 0
    taken = fill(lambda: send(store))
    assert store.max_offset("Topic", 0) == 150 + taken == len(read_all(store))
    assert (store.commit_log_max_position > end) == (taken > 0)
    disk.left = None
    batch = encode_batch([(0, b"a", b"TAGS\x01tagB")] * 9)
    store.append_batch("Topic", 0, batch, b"", 0, 1, HOST)
    codes = [code for _, _, code in store.entries("Topic", 0, 0, 1000)]
    units = [store.ext_unit("Topic", 0, code) for code in codes]
    assert all(unit is not None and unit.bit_map == b"\x01" * 14 for unit in units)
    assert [r.queue_offset for r in read_all(store, matches=Tags(string_hash("tagB")))] == list(
        range(150 + taken, 159 + taken)
    )
    store.close()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, enable_consume_queue_ext=True)
    assert store.recovery.entries_repaired == 0
    assert [code for _, _, code in store.entries("Topic", 0, 0, 1000)] == codes
    assert len(read_all(store)) == len(codes)
    store.close()
