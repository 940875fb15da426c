"""Flush: flushes the log, the queues and the checkpoint, in the pool.

1. One flush of the log is in flight at a time; it covers everything appended before it began. Those that
   wait for SYNC_FLUSH meanwhile share the next one (group commit). Linux reports a failed write to one fsync
   per descriptor: with two at a time the other one would report success.
2. flushed_position only moves after fdatasync returned without an error.
3. After an fsync error of the log nothing is flushed or appended any more: the kernel may have dropped the
   dirty pages and would report the next fsync as good (RocketMQ logs the error and continues). A file that
   could not be opened is retried: nothing is known to be lost.
4. The checkpoint is written after the log and the queues that it covers. After an fsync error of a queue or
   of the index no checkpoint is written any more: the next start rebuilds them from the log.
Owner: MessageStore. Intervals: RocketMQ's; we also write a checkpoint each CHECKPOINT_STEP bytes, so
that recovery after a crash has little to read.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import NamedTuple

from pocketmq.store.errors import FlushFailed, StoreError, StoreFailed, StoreUnreadable
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.checkpoint import MARGIN, Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.folder import open_folder, sync_opened
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.queue.consume_queue import ConsumeQueue, records_before
from pocketmq.store.queue.consume_queue_table import OPEN_KEPT, ConsumeQueueTable
from pocketmq.store.side_tasks import SideTasks
from pocketmq.store.store_config import StoreConfig
from pocketmq.store.store_lock import AbortFile

log = logging.getLogger(__name__)

CHECKPOINT_STEP = 32 << 20
_PAGE = 4096


class FlushedFiles(NamedTuple):
    """The files that a store writes; abort says how it ended."""

    log: CommitLog
    table: ConsumeQueueTable
    index_service: IndexService
    abort: AbortFile


class Flush:
    """flushed_position: everything in the log below it is on disk."""

    def __init__(
        self,
        config: StoreConfig,
        files: FlushedFiles,
        checkpoint: Checkpoint,
        pool: Executor,
        on_failed: Callable[[StoreFailed], None],
        side_tasks: SideTasks,
    ) -> None:
        self._config = config
        self._log, self._table, self._index, self._abort = files
        self.checkpoint = checkpoint
        self._work = _PoolWork(pool)
        self._on_failed = on_failed
        self._side_tasks = side_tasks
        self.flushed_position = 0
        self.failed: StoreFailed | None = None
        self.count = 0
        self._group: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        # An fsync of queues or index failed (invariant 4).
        self._checkpoints_end: OSError | None = None
        # The newest file of the log whose name is on the disk, by its position.
        self._named = -1
        self._flushed_at_ns = time.monotonic_ns()
        self._checkpoint_at_ns = self._flushed_at_ns
        self._openings = 0

    # ------------------------------------------------------------ SYNC_FLUSH

    def wait_for(self, position: int) -> asyncio.Future[None] | None:
        """See MessageStore.flushed."""
        if position <= self.flushed_position:
            return None
        if self._group is None:
            self._group = asyncio.get_running_loop().create_future()
            # All waiters may be cancelled: a failure is also in `failed` and in the log.
            self._group.add_done_callback(_retrieve)
            if self.failed is not None:
                self._group.set_exception(FlushFailed(self.failed))
                failed, self._group = self._group, None
                return failed
            self._wake.set()
        return self._group

    # ------------------------------------------------------------ loops

    async def run_log(self) -> None:
        """Flush the log until cancelled: at once if a caller waits for it, else at intervals."""
        config = self._config
        while self.failed is None:
            try:
                async with asyncio.timeout(config.flush_interval_commit_log / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if self._group is not None or self._due():
                await self.flush_log()

    def _due(self) -> bool:
        behind = self._log.end - self.flushed_position
        if behind <= 0:
            return False
        if self._config.flush_disk_type == "SYNC_FLUSH":
            # Records without a waiter (a delayed message that became due) are made durable, too.
            return True
        if behind >= self._config.flush_commit_log_least_pages * _PAGE:
            return True
        passed_ms = (time.monotonic_ns() - self._flushed_at_ns) / 1e6
        return passed_ms >= self._config.flush_commit_log_thorough_interval

    async def flush_log(self) -> None:
        """Run one group commit (invariants 1-3)."""
        group: asyncio.Future[None] | None = None
        try:
            async with self._one_at_a_time:
                if self.failed is not None:
                    return
                group, self._group = self._group, None
                target = self._log.end
                try:
                    await self._sync_log(target)
                except OSError as error:
                    self._fail(error, group)
                    return
                self._flushed_to(target)
        except asyncio.CancelledError:
            for waiting in (group, self._group):
                if waiting is not None and not waiting.done():
                    waiting.set_exception(FlushFailed("the store is being closed"))
            raise
        if group is not None and not group.done():
            group.set_result(None)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._group is not None:
            self._wake.set()

    async def _sync_log(self, target: int) -> None:
        """Sync the log up to `target`, retrying files that cannot be opened. Raises: OSError."""
        files = self._files_between(self.flushed_position, target)
        while True:
            try:
                await self._work.run(lambda: self._sync_files(files))
            except StoreUnreadable as error:
                self._side_tasks.failed("flush", error)
                await asyncio.sleep(self._side_tasks.retry_ms / 1000)
            else:
                self._side_tasks.went_well("flush")
                return

    def _sync_files(self, files: list[MappedFile]) -> None:
        for file in files:
            file.sync()
        if files and files[-1].start > self._named:
            # A file was added: its name has to be durable too.
            folder = self._log.files.folder
            try:
                descriptor = open_folder(folder)
            except OSError as error:
                raise StoreUnreadable(folder, error) from error
            sync_opened(descriptor)
            self._named = files[-1].start

    def _files_between(self, start: int, end: int) -> list[MappedFile]:
        return [file for file in self._log.files.files if file.start < end and file.end > start]

    def _flushed_to(self, position: int) -> None:
        self.flushed_position = position
        self.count += 1
        self._flushed_at_ns = time.monotonic_ns()

    def _fail(self, error: OSError, group: asyncio.Future[None] | None) -> None:
        failed = self.failed = StoreFailed(error)
        log.critical("flush failed, the store is read-only from now on error=%s", error)
        self._abort.note_failed_fsync()
        self._on_failed(failed)
        for waiting in (group, self._group):
            if waiting is not None and not waiting.done():
                waiting.set_exception(FlushFailed(error))
        self._group = None

    async def run_queues(self) -> None:
        """Write checkpoints until cancelled."""
        while self.failed is None:
            await asyncio.sleep(self._config.flush_interval_consume_queue / 1000)
            if self._checkpoint_due():
                await self.flush_all()

    def _checkpoint_due(self) -> bool:
        behind = self._log.end - self.checkpoint.flushed_position
        if behind >= CHECKPOINT_STEP:
            return True
        if self._table.openings - self._openings >= OPEN_KEPT:
            # Queues with entries that are not on the disk cannot be closed.
            return True
        passed_ms = (time.monotonic_ns() - self._checkpoint_at_ns) / 1e6
        return behind != 0 and passed_ms >= self._config.flush_consume_queue_thorough_interval

    # ------------------------------------------------------------ checkpoint

    async def flush_all(self) -> None:
        """Flush log, queues, index and checkpoint, in the pool."""
        self._checkpoint_at_ns = time.monotonic_ns()
        self._openings = self._table.openings
        try:
            work = self._collect()
            await self.flush_log()
            if self.flushed_position < work.target or self._checkpoints_end is not None:
                return
            await self._work.run(work.run)
        except (OSError, StoreError) as error:
            self._side_tasks.failed("checkpoint", error)
        else:
            self._side_tasks.went_well("checkpoint")
            self._done(work)

    def flush_all_now(self) -> None:
        """Like flush_all, blocking: for a clean stop. Raises: OSError, StoreError."""
        if self.failed is not None:
            raise FlushFailed(self.failed)
        work = self._collect()
        files = self._files_between(min(self.flushed_position, work.target), work.target)
        try:
            self._work.join()
            self._sync_files(files)
        except OSError as error:
            self._fail(error, None)
            raise
        self._flushed_to(work.target)
        if self._checkpoints_end is not None:
            raise self._checkpoints_end
        work.run()
        self._done(work)

    def _collect(self) -> "_Round":
        target = self._log.end
        queues = [
            (queue, queue.max_offset, self._table.dirty_files(queue))
            for queue in self._table.queues.values()
            if queue.flushed_offset < queue.max_offset
        ]
        self.checkpoint.log_file_size = self._log.file_size
        self.checkpoint.queue_file_size = self._table.file_size
        return _Round(self, target, self._log.store_ms, queues)

    def _done(self, work: "_Round") -> None:
        for queue, offset, _ in work.queues:
            queue.flushed_offset = max(queue.flushed_offset, min(offset, queue.max_offset))

    def end_checkpoints(self, error: OSError) -> None:
        """Apply invariant 4 after an error."""
        self._checkpoints_end = error
        self._abort.note_failed_fsync()
        log.error(
            "queues or index could not be flushed, so no more checkpoints are written; check the "
            "disk and restart, which rebuilds them from the log error=%s",
            error,
        )


class _PoolWork:
    """Work in the pool, which may still run after the task that started it was cancelled."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._running: set[Future[None]] = set()

    async def run(self, work: Callable[[], None]) -> None:
        """Run `work` in the pool; if the wait is cancelled, `join` picks up the result."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        running: Future[None] = self._pool.submit(work)
        self._running.add(running)

        def tell(_: Future[None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_end, ended)

        running.add_done_callback(tell)
        await ended
        self._running.discard(running)
        running.result()

    def join(self) -> None:
        """Wait for what was cancelled with its task, and may be the one that hears of an error; blocks."""
        for running in self._running:
            running.result()


class _Round:
    """What one checkpoint covers, except for the log; collected on the loop, carried out in the pool."""

    def __init__(
        self,
        flush: Flush,
        target: int,
        store_ms: int,
        queues: list[tuple[ConsumeQueue, int, list[MappedFile]]],
    ) -> None:
        self._flush = flush
        self.target = target
        self.store_ms = store_ms
        self.queues = queues
        # Taken on the loop: files that get more entries meanwhile only hold more than it says.
        self._indexed = flush._index.indexed_position
        near = records_before((queue for queue, _, _ in queues), target - MARGIN)
        self._boundary = max([*near, flush.checkpoint.boundary])

    def run(self) -> None:
        """Sync and write the checkpoint. Raises: StoreError, and may be rerun; OSError after an fsync
        error.
        """
        flush = self._flush
        checkpoint = flush.checkpoint
        try:
            for _, _, files in self.queues:
                for file in files:
                    file.sync()
            index_ms = flush._index.sync()
        except OSError as error:
            flush.end_checkpoints(error)
            raise
        checkpoint.index_ms = index_ms
        checkpoint.indexed_position = self._indexed
        checkpoint.log_ms = checkpoint.queue_ms = self.store_ms
        checkpoint.queue_position = checkpoint.flushed_position = self.target
        checkpoint.boundary = self._boundary
        checkpoint.save()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


async def until_flushed(flushed: "asyncio.Future[None] | None") -> None:
    """Wait for what MessageStore.flushed returned."""
    if flushed is not None:
        await asyncio.shield(flushed)
