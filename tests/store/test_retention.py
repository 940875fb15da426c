"""What is deleted, when, and what is not (disk.md 16)."""

import asyncio
import errno
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pocketmq import bulk
from pocketmq.bulk.archive import Archiver
from pocketmq.remoting.clock import ManualClock
from pocketmq.store import DiskFull, MessageStore, ReadStatus
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.log.retention import disk_use
from tests.store.stores import HOST, LONG_MAX, open_store, read_all, running_store, send

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    # Now, since the age of a file counts from its modification time.
    return ManualClock(time.time_ns() // 1_000_000)


def filled(tmp_path: Path, clock: ManualClock, **changes: object) -> MessageStore:
    """Five log files; the queue Old only in the first."""
    store = open_store(tmp_path, clock, delete_when="", **changes)
    for _ in range(5):
        send(store, "Old")
    for number in range(90):
        store.append("Topic", 0, b"x" * 3000, b"KEYS\x01k%d" % number, 0, 0, 1, HOST)
    clock.advance_ms(60_000)
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: 0.5
    return store


def step(store: MessageStore, *, manual: bool = False) -> int:
    assert store.retention is not None
    files = store.retention.step(manual=manual)
    store.retention.delete_left()
    return len(files)


def test_files_go_when_they_are_old_and_it_is_the_hour(tmp_path: Path, clock: ManualClock) -> None:
    store = filled(tmp_path, clock)
    hour = time.localtime(clock.now_ms() // 1000 + 73 * 3600).tm_hour
    assert step(store) == 0
    clock.advance_ms(73 * HOUR_MS)
    assert step(store) == 0
    store.config.delete_when = f"{(hour + 1) % 24};{hour}"
    before = len(os.listdir(tmp_path / "commitlog"))
    assert step(store) == before - 1
    assert len(os.listdir(tmp_path / "commitlog")) == 1
    store.close()


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a rule in full, since a machine may have no table of time zones."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("noon", "deleted"),
    [
        # 02:00 to 03:00 does not exist in this night, and comes in the next.
        ("2027-03-27T12:00+00:00", "2027-03-29T00:00+00:00"),
        # It comes twice.
        ("2027-10-30T12:00+00:00", "2027-10-31T00:00+00:00"),
    ],
)
def test_the_deletion_hour_is_local_through_summer_time(
    tmp_path: Path, central_europe: None, noon: str, deleted: str
) -> None:
    """R14: the one thing that goes by local time; whatever else waits, waits for a moment."""
    clock = ManualClock(round(datetime.fromisoformat(noon).timestamp() * 1000))
    store = filled(tmp_path, clock)
    store.config.delete_when = "2"
    old = clock.now_ms() / 1000 - 80 * 3600
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (old, old))
    clock.jump_ms(-60_000)
    while step(store) == 0:
        clock.advance_ms(600_000)
    assert datetime.fromtimestamp(clock.now_ms() / 1000, UTC) == datetime.fromisoformat(deleted)
    store.close()


def test_files_younger_than_the_reserved_time_stay(tmp_path: Path, clock: ManualClock) -> None:
    store = filled(tmp_path, clock)
    clock.advance_ms(71 * HOUR_MS)
    assert store.delete_expired_files() == 0
    clock.advance_ms(2 * HOUR_MS)
    assert store.delete_expired_files() >= 4
    store.close()


@pytest.mark.parametrize(
    ("use", "old", "goes"),
    [
        (0.70, True, False),
        (0.80, True, True),
        (0.80, False, False),
        (0.88, False, True),
    ],
)
def test_a_fuller_disk_deletes_at_any_hour_and_then_at_any_age(
    tmp_path: Path, clock: ManualClock, use: float, old: bool, goes: bool
) -> None:
    store = filled(tmp_path, clock)
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: use
    if old:
        clock.advance_ms(73 * HOUR_MS)
    assert (step(store) > 0) is goes
    store.close()


def test_no_early_deletion_when_it_is_switched_off(tmp_path: Path, clock: ManualClock) -> None:
    """cleanFileForciblyEnable=false: the disk fills, and messages are refused."""
    store = filled(tmp_path, clock, clean_file_forcibly_enable=False)
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: 0.95
    assert step(store) == 0
    assert not store.writable
    clock.advance_ms(73 * HOUR_MS)
    assert step(store) > 0
    store.close()


def test_old_files_wait_for_the_archive_until_the_disk_fills(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    store = filled(root, clock, wait_for_archive=True)
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: 0.8
    clock.advance_ms(73 * HOUR_MS)
    assert (step(store), step(store), step(store, manual=True)) == (0, 0, 0)
    assert caplog.text.count("keeping an old file that has not been archived") == 1
    archiver = Archiver(str(root), str(tmp_path / "archive"))
    next(archiver.run())
    assert step(store) == 1
    read = store.read("Topic", 0, store.min_offset("Topic", 0), 1)
    assert read.status is ReadStatus.FOUND
    # A disk that fills is worse than a hole in the archive.
    assert "deleting a file" not in caplog.text
    store.retention.measure_disk_use = lambda path: 0.88
    files = len(os.listdir(root / "commitlog"))
    assert step(store) == files - 1
    assert caplog.text.count("deleting a file that has not been archived") == files - 1
    store.close()


def test_what_the_archive_has_may_go_and_is_read_there(tmp_path: Path, clock: ManualClock) -> None:
    root = tmp_path / "broker-a" / "store"
    store = filled(root, clock, wait_for_archive=True, file_reserved_time=0)
    files = len(os.listdir(root / "commitlog"))
    assert store.delete_expired_files() == 0
    archive = tmp_path / "archive" / "broker-a"
    assert len(list(Archiver(str(root), str(archive)).run())) == files - 1
    assert store.delete_expired_files() == files - 1
    both = bulk.scan([str(archive), str(root)], topics=["Topic"], columns="queueOffset").read_all()
    assert sorted(both.column("queueOffset").to_pylist()) == list(range(90))
    store.close()


async def test_an_undeletable_file_stays_first_and_stops_nothing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only disk: messages are taken, health names what fails, and it goes when that is over."""
    broken = True
    real = MappedFile.delete

    def delete(file: MappedFile) -> None:
        if broken:
            raise OSError(errno.EROFS, "Read-only file system")
        real(file)

    monkeypatch.setattr(MappedFile, "delete", delete)
    filled(tmp_path, clock).close()
    before = len(os.listdir(tmp_path / "commitlog"))
    # It is always the hour.
    hours = ";".join(str(hour) for hour in range(24))
    clock.advance_ms(73 * HOUR_MS)
    async with (
        asyncio.timeout(30),
        running_store(tmp_path, clock, delete_when=hours, clean_resource_interval=1) as store,
    ):
        store.side_tasks.retry_ms = 1
        for _ in range(2):
            send(store)
            while "retention" not in store.side_tasks.troubles:
                await asyncio.sleep(0.001)
        assert len(os.listdir(tmp_path / "commitlog")) >= before
        broken = False
        while store.side_tasks.troubles or len(os.listdir(tmp_path / "commitlog")) >= before:
            await asyncio.sleep(0.001)
        assert store.writable


def test_one_round_deletes_a_bounded_number_of_files(tmp_path: Path, clock: ManualClock) -> None:
    store = filled(tmp_path, clock, delete_file_batch_max=2)
    assert store.retention is not None
    store.retention.measure_disk_use = lambda path: 0.88
    assert [step(store), step(store)] == [2, 2]
    store.close()


def test_a_deletion_moves_offsets_times_and_queries(tmp_path: Path, clock: ManualClock) -> None:
    """disk.md 14: min offset moves; what is before is OFFSET_TOO_SMALL."""
    store = filled(tmp_path, clock, file_reserved_time=0)
    files = len(os.listdir(tmp_path / "commitlog"))
    assert store.delete_expired_files() == files - 1
    low = store.min_offset("Topic", 0)
    assert 60 < low < 90
    assert store.max_offset("Topic", 0) == 90
    result = store.read("Topic", 0, 0, 32)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, low)
    assert [r.queue_offset for r in read_all(store, offset=low)] == list(range(low, 90))
    assert store.earliest_time("Topic", 0) == store.store_time_at("Topic", 0, low)
    assert store.store_time_at("Topic", 0, 0) == -1
    assert store.record_at(0) is None
    assert store.offset_by_time("Topic", 0, 0) == low
    assert store.query_by_key("Topic", "k1", 64, 0, LONG_MAX).records == []
    assert len(store.query_by_key("Topic", "k89", 64, 0, LONG_MAX).records) == 1
    # Queue files whose records are all gone have gone too, but for each queue's last.
    assert len(os.listdir(tmp_path / "consumequeue" / "Topic" / "0")) == 1
    # A queue without a record left keeps its offsets, as in 4.9.
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (0, 5)
    assert store.read("Old", 0, 0, 32).status is ReadStatus.MESSAGE_WAS_REMOVING
    assert store.read("Old", 0, 0, 32).count == 0
    assert store.earliest_time("Old", 0) == -1
    store.close()
    store = open_store(tmp_path, clock)
    assert store.min_offset("Topic", 0) == low
    assert send(store, "Old") == 5
    store.close()


def test_expired_queues_are_cleaned_on_request(tmp_path: Path, clock: ManualClock) -> None:
    store = filled(tmp_path, clock, file_reserved_time=0)
    assert store.clean_expired_consume_queues(()) == 0
    store.delete_expired_files()
    assert store.clean_expired_consume_queues({"Old"}) == 0
    assert store.clean_expired_consume_queues({"Topic"}) == 1
    assert list(store.queues()) == [("Topic", 0)]
    store.close()


def test_a_queue_without_files_continues_at_its_records(tmp_path: Path, clock: ManualClock) -> None:
    """disk.md 4: pre-blank fill; queue offsets are those of the records."""
    store = filled(tmp_path, clock, file_reserved_time=0)
    store.delete_expired_files()
    low = store.min_offset("Topic", 0)
    store.close()
    for path in (tmp_path / "consumequeue" / "Topic" / "0").iterdir():
        path.unlink()
    store = open_store(tmp_path, clock)
    assert (store.min_offset("Topic", 0), store.max_offset("Topic", 0)) == (low, 90)
    assert [r.queue_offset for r in read_all(store, offset=low)] == list(range(low, 90))
    assert send(store) == 90
    store.close()


def test_the_use_of_a_disk_is_a_share(tmp_path: Path) -> None:
    assert 0 <= disk_use(str(tmp_path / "not" / "there")) <= 1


def test_a_disk_that_is_too_full_still_is_after_a_promotion(tmp_path: Path) -> None:
    """A slave that becomes the master took messages until there was no block left."""
    store = open_store(tmp_path)
    retention = store.retention
    assert retention is not None
    retention.measure_disk_use = lambda path: 0.95
    retention.check_disk()
    store.follow()
    store.lead()
    with pytest.raises(DiskFull):
        send(store, "Topic", 0, b"x")
    retention.measure_disk_use = lambda path: 0.5
    retention.check_disk()
    send(store, "Topic", 0, b"x")
    store.close()
