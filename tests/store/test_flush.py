"""What SEND_OK means: flushes, group commit, and what happens after an fsync error (R8)."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from tests.store.stores import HOST, open_store, read_all, running_store, send

from pocketmq.store import FlushFailed, MessageStore, StoreFailed


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


async def test_an_error_while_the_checkpoint_is_written_stops_the_store_too(
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
    """disk.md 8: the checkpoint has the times; abort is gone."""
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
    store._lock.release()
    store._index.close()
    store._log.close()
    store._table.close()
    store = opened()
    assert store.recovery.end == end
    assert 0 < end - store.recovery.checked_from < 2 << 20
    assert store.recovery.entries_added == 0
    assert len(read_all(store)) == 1300
    store.close()
