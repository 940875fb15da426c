"""What SEND_OK means: flushes, group commit, and what happens after an fsync error (R8)."""

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.model.java_hash import string_hash
from pocketmq.store import FlushFailed, MessageStore, StoreError, StoreFailed
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.store_lock import AbortFile, LastStop
from tests.store.stores import HOST, Tags, open_store, read_all, running_store, send


class Disk:
    """os.fdatasync and os.fsync as a disk that can be counted, stopped and broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.error: OSError | None = None
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error
        self._real(descriptor)


async def test_flushed_waits_until_the_record_is_on_the_disk(tmp_path: Path) -> None:
    """SYNC_FLUSH."""
    async with running_store(tmp_path) as store:
        appended = store.append("Topic", 0, b"x", b"", 0, 0, 1, HOST)
        end = appended.position + appended.size
        waiting = store.flushed(end)
        assert waiting is not None
        await waiting
        assert store.flushed_position >= end
        assert store.flushed(end) is None
        assert store.flush_behind_size == 0


async def test_all_who_wait_share_one_group_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fdatasync for many: throughput grows with the number in flight."""
    disk = Disk(monkeypatch)
    async with running_store(tmp_path) as store:
        before = disk.syncs
        waiting = []
        for _ in range(50):
            appended = store.append("Topic", 0, b"x", b"", 0, 0, 1, HOST)
            waiting.append(store.flushed(appended.position + appended.size))
        assert len({id(future) for future in waiting}) == 1
        for future in waiting:
            assert future is not None
            await future
        assert disk.syncs - before <= 2


async def test_a_group_commit_covers_files_that_were_rolled(tmp_path: Path) -> None:
    """The record may be in the file behind the one where the last flush ended."""
    async with running_store(tmp_path) as store:
        for _ in range(60):
            appended = store.append("Topic", 0, b"x" * 3000, b"", 0, 0, 1, HOST)
        assert appended.position > 2 * (64 << 10)
        waiting = store.flushed(appended.position + appended.size)
        assert waiting is not None
        await waiting
        assert store.flushed_position == appended.position + appended.size


async def test_asynchronous_flushes_come_by_themselves(tmp_path: Path) -> None:
    """ASYNC_FLUSH: within flushIntervalCommitLog."""
    async with running_store(
        tmp_path, flush_interval_commit_log=5, flush_commit_log_least_pages=0
    ) as store:
        send(store)
        async with asyncio.timeout(30):
            while store.flushed_position < store.commit_log_max_position:
                await asyncio.sleep(0.001)


async def test_after_an_fsync_error_nothing_is_taken_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8, fsyncgate: the next fsync would say that all is well; RocketMQ believes it."""
    disk = Disk(monkeypatch)
    async with running_store(tmp_path) as store:
        appended = store.append("Topic", 0, b"x", b"", 0, 0, 1, HOST)
        end = appended.position + appended.size
        disk.error = OSError(errno.EIO, "Input/output error")
        waiting = store.flushed(end)
        assert waiting is not None
        with pytest.raises(FlushFailed, match="Input/output error"):
            await waiting
        disk.error = None
        with pytest.raises(StoreFailed, match="read-only"):
            send(store)
        again = store.flushed(end)
        assert again is not None
        with pytest.raises(FlushFailed):
            await again
        assert not store.writable
        # What is there can be read.
        assert len(read_all(store)) == 1
    # The stop was not clean, and the next start knows it.
    assert (tmp_path / "abort").exists()
    store = open_store(tmp_path)
    assert len(read_all(store)) == 1
    assert send(store) == 1
    store.close()


async def test_nothing_believes_the_fsync_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What flushes on its own at a stop, as timers do: progress over a hole would be saved."""
    disk = Disk(monkeypatch)
    async with running_store(tmp_path) as store:
        send(store)
        disk.error = OSError(errno.EIO, "Input/output error")
        waiting = store.flushed(store.commit_log_max_position)
        assert waiting is not None
        with pytest.raises(FlushFailed):
            await waiting
        disk.error = None
        with pytest.raises(FlushFailed, match="Input/output error"):
            store.flush_now()
        assert store.flushed_position == 0
    assert not (tmp_path / "checkpoint").exists()


def test_a_start_after_a_failed_final_fsync_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where something flushed before the store itself, and was told of the error."""
    disk = Disk(monkeypatch)
    store = open_store(tmp_path)
    send(store)
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output error"):
        store.flush_now()
    disk.error = None
    store.close()
    assert not store.closed_cleanly
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.FORGOTTEN


def test_a_failed_fsync_is_noted_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A full disk, and all descriptors taken: the next start writes again what the kernel forgot."""
    abort = AbortFile(str(tmp_path))
    abort.create(whole=True)
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.KILLED
    with no_room():
        abort.note_failed_fsync()
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.FORGOTTEN
    # Nor is the note lost with an attempt to replace it.
    with no_room(), pytest.raises(OSError, match="too large"):
        abort.create(whole=True)
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.FORGOTTEN
    abort.create(whole=True)
    assert AbortFile(str(tmp_path)).last_stop() is LastStop.KILLED
    abort.close()


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file takes a byte, and none can be opened."""
    kept = {
        each: resource.getrlimit(each) for each in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    }
    try:
        for each, (_, most) in kept.items():
            resource.setrlimit(each, (0, most))
        yield
    finally:
        for each, limits in kept.items():
            resource.setrlimit(each, limits)


async def test_a_failed_checkpoint_write_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queue files and the checkpoint are flushed by the same rules."""
    disk = Disk(monkeypatch)
    async with running_store(
        tmp_path,
        flush_interval_consume_queue=5,
        flush_consume_queue_thorough_interval=5,
        flush_interval_commit_log=60_000,
    ) as store:
        disk.error = OSError(errno.EIO, "Input/output error")
        send(store)
        async with asyncio.timeout(30):
            while store.writable:
                await asyncio.sleep(0.001)
        with pytest.raises(StoreFailed):
            send(store)


def test_a_clean_stop_flushes_everything_and_says_so(tmp_path: Path) -> None:
    """disk.md 8: the checkpoint has the times; abort is removed."""
    store = open_store(tmp_path)
    send(store)
    assert (tmp_path / "abort").exists()
    store.close()
    assert not (tmp_path / "abort").exists()
    times = (tmp_path / "checkpoint").read_bytes()
    assert len(times) == 4096
    assert int.from_bytes(times[:8], "big") == store.store_ms
    assert int.from_bytes(times[8:16], "big") == store.store_ms


async def test_a_checkpoint_spares_the_next_recovery_what_is_before_it(tmp_path: Path) -> None:
    """Recovery after a crash reads from about the last checkpoint on, however much is stored."""

    def opened() -> MessageStore:
        return open_store(
            tmp_path, mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=60_000
        )

    store = opened()
    for _ in range(1200):
        send(store, body=b"x" * 3000)
    store.close()
    store = opened()
    for _ in range(100):
        send(store, body=b"y")
    end = store.commit_log_max_position
    # A crash: nothing is written at the end, and the page cache survives the process.
    store.lock.release()
    store.index.close()
    store.commit_log.close()
    store.table.close()
    store = opened()
    assert store.recovery.end == end
    assert 0 < end - store.recovery.checked_from < 2 << 20
    assert store.recovery.entries_added == 0
    assert len(read_all(store)) == 1300
    store.close()


class TellsOnce:
    """A disk whose first fdatasync fails when another one has come meanwhile, or after a while alone.

    As Linux does: one of the two hears of the error, the other one that all is well.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        self.armed = False
        self.begun = threading.Event()
        self._real = os.fdatasync
        self._another = threading.Event()
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        if not self.armed:
            self._real(descriptor)
            return
        self.calls.append(descriptor)
        if len(self.calls) > 1:
            self._another.set()
            return
        self.begun.set()
        # Alone: no other caller comes, and the error is told all the same.
        self._another.wait(0.3)
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("first", ["checkpoint", "log"])
async def test_an_fsync_error_that_is_told_once_reaches_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """R8: a checkpoint and a group commit at the same time; neither believes the other's good news."""
    disk = TellsOnce(monkeypatch)
    async with running_store(
        tmp_path,
        flush_interval_commit_log=60_000,
        flush_interval_consume_queue=60_000,
        flush_commit_log_thorough_interval=600_000,
    ) as store:
        flush = store.flushing
        assert flush is not None
        appended = store.append("Topic", 0, b"x", b"", 0, 0, 1, HOST)
        end = appended.position + appended.size
        disk.armed = True
        both = [flush.flush_all, flush.flush_log]
        if first == "log":
            both.reverse()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(both[0](), name="first")
            assert await asyncio.to_thread(disk.begun.wait, 30)
            waiting = store.flushed(end)
            assert waiting is not None
            tasks.create_task(both[1](), name="second")
            with pytest.raises(FlushFailed, match="Input/output error"):
                await asyncio.wait_for(asyncio.shield(waiting), 30)
        assert len(disk.calls) == 1
        assert store.flushed_position == 0
        assert not store.writable
        assert not (tmp_path / "checkpoint").exists()
        disk.armed = False


async def test_a_stop_hears_of_the_error_of_a_flush_that_it_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancelled flush still runs in the pool, and the error is told to it alone."""
    disk = TellsOnce(monkeypatch)
    async with running_store(tmp_path) as store:
        send(store)
        disk.armed = True
        assert store.flushed(store.commit_log_max_position) is not None
        assert await asyncio.to_thread(disk.begun.wait, 30)
    assert not store.closed_cleanly
    assert (tmp_path / "abort").exists()


async def test_an_unflushable_queue_ends_checkpoints_not_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues can be made again from the log: messages are taken, and the next start reads from before."""
    real = os.fdatasync
    broken: list[str] = []

    def sync(descriptor: int) -> None:
        if broken and broken[0] in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    async with running_store(tmp_path) as store:
        assert store.flushing is not None
        send(store)
        await store.flushing.flush_all()
        known = store.flushing.checkpoint.flushed_position
        send(store)
        broken.append("/consumequeue/")
        await store.flushing.flush_all()
        broken.clear()
        await store.flushing.flush_all()
        assert store.flushing.checkpoint.flushed_position == known
        assert store.flushed_position == store.commit_log_max_position > known
        assert send(store) == 2
        assert "Input/output error" in store.side_tasks.troubles["checkpoint"].reason
    assert (tmp_path / "abort").exists()
    store = open_store(tmp_path)
    assert store.recovery.checked_from <= known
    assert len(read_all(store)) == 3
    store.close()


async def test_a_file_that_cannot_be_opened_is_no_fsync_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE: connections have taken every descriptor. The store waits, and recovers by itself."""
    real = os.open
    none_left = False

    def open_one(path: str, flags: int, mode: int = 0o777) -> int:
        if none_left and str(path).startswith(str(tmp_path)):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", open_one)
    async with running_store(tmp_path) as store:
        store.side_tasks.retry_ms = 1
        send(store)
        none_left = True
        # A file more, whose name has to come to the disk too.

        def append_many() -> None:
            for _ in range(40):
                store.append("Topic", 0, b"x" * 3000, b"", 0, 0, 1, HOST)

        with pytest.raises(StoreError, match="Too many open files"):
            append_many()
        waiting = store.flushed(store.commit_log_max_position)
        assert waiting is not None
        async with asyncio.timeout(30):
            while "flush" not in store.side_tasks.troubles:
                await asyncio.sleep(0.001)
        assert store.writable
        none_left = False
        await waiting
        assert store.flushing is not None
        # A checkpoint looks into queues that are not mapped any more.
        for _ in range(2):
            store.table.release_idle()
        none_left = True
        await store.flushing.flush_all()
        assert "checkpoint" in store.side_tasks.troubles
        none_left = False
        await store.flushing.flush_all()
        assert store.side_tasks.troubles.keys() <= {"preallocation"}
        assert store.append("Topic", 0, b"x" * 3000, b"", 0, 0, 1, HOST).queue_offset > 0
    assert store.closed_cleanly


async def test_entries_of_a_killed_process_are_flushed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were in the page cache only: a power cut after the next checkpoint would lose them."""
    store = open_store(tmp_path / "a")
    for _ in range(60):
        send(store)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store.close()
    synced: list[str] = []
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    async with running_store(tmp_path / "b") as store:
        assert store.flushing is not None
        await store.flushing.flush_all()
        entries = [path for path in synced if "/consumequeue/" in path]
        assert {Path(path).name for path in entries} == {"0".zfill(20), "1000".zfill(20)}
        synced.clear()
        await store.flushing.flush_all()
        assert not [path for path in synced if "/consumequeue/" in path]


def test_a_checkpoint_flushes_the_units_of_consumequeue_ext(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fdatasync = os.fdatasync

    def noted(descriptor: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")).parts[-4])
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    store = open_store(tmp_path, enable_consume_queue_ext=True)
    send(store, tag="a")
    assert store.flushing is not None
    store.flushing.flush_all_now()
    assert {"consumequeue", "consumequeue_ext"} <= synced
    synced.clear()
    store.flushing.flush_all_now()
    assert not {"consumequeue", "consumequeue_ext"} & synced
    send(store, tag="a")
    store.flushing.flush_all_now()
    assert {"consumequeue", "consumequeue_ext"} <= synced
    store.close()


def test_a_message_with_a_lost_unit_is_found_by_its_tag(tmp_path: Path) -> None:
    """More of the log than the next start walks through, so that it repairs no entry."""
    changes: dict[str, Any] = {
        "mapped_file_size_commit_log": 4 << 20,
        "enable_consume_queue_ext": True,
    }
    store = open_store(tmp_path, **changes)
    for number in range(200):
        send(store, body=bytes(12_000), tag="ab"[number % 2])
    store.close()
    shutil.rmtree(tmp_path / "consumequeue_ext")
    store = open_store(tmp_path, **changes)
    found = read_all(store, matches=Tags(string_hash("a")))
    assert [record.queue_offset for record in found] == list(range(0, 200, 2))
    store.close()


def test_a_file_deleted_while_it_is_flushed_is_no_failed_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention on a full disk takes files that the flush has in hand; the store became read-only."""
    file = MappedFile.create(str(tmp_path), 0, 4096, keep_open=True)
    file.reserve(4096)
    real = os.fdatasync

    def late(descriptor: int) -> None:
        file.delete()
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", late)
    file.sync()
    assert not list(tmp_path.iterdir())
