"""MessageStore: one opened store directory: its life, and what it reads and appends.

    async with MessageStore(config, clock=SystemClock(), store_host=pack_host("127.0.0.1:10911")) as store:
        appended = store.append("TopicTest", 0, b"hello", b"TAGS\\x01tagA\\x02", 0, 0, now_ms, born_host)
        result = store.read("TopicTest", 0, 0, 32)

1. Everything but `async with` is a plain call on the event loop's thread: no locks, nothing awaits.
2. A record is in the log before its entry is in the queue; both are there when append returns, and both
   survive the end of the process. SYNC_FLUSH: see flushed().
3. If append raises, nothing was stored.
4. Slices returned by reads stay valid, even if their file is deleted or the store is closed.
Here is everything around reads and appends: lock, recovery, background work, refusing appends when the disk
fails, deleting, figures. None of it is on the path of a message. What is on it calls `reads` and `appends`.
Owner: the Broker, in its TaskGroup; the store's own tasks live in a TaskGroup of its own.
One noun: a store, as its users call it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.record import Record
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.threads import Threads
from pocketmq.store.appends import Appended, AppendedBatch, AppendedFiles, Appends, Buffer
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.errors import (
    RecordIllegal,
    StoreClosed,
    StoreError,
    StoreFollows,
    StoreNotWriteable,
    StoreUnreadable,
)
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.descriptors import fill_spares
from pocketmq.store.log.flush import Flush, FlushedFiles, until_flushed
from pocketmq.store.log.preallocation import Preallocation
from pocketmq.store.log.retention import Retention, disk_use
from pocketmq.store.message_reader import EntryFilter, ReadResult
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.consume_queue_table import BATCH_QUEUE, QUEUE_TYPE, ConsumeQueueTable
from pocketmq.store.queue.deleted_queues import DeletedQueues
from pocketmq.store.reads import Backlog, QueryResult, Reads
from pocketmq.store.repair.recovery import Recovery, RecoveryReport
from pocketmq.store.repair.unsupported import refuse_foreign
from pocketmq.store.side_tasks import SideTasks
from pocketmq.store.store_config import StoreConfig
from pocketmq.store.store_lock import AbortFile, LastStop, StoreLock

if TYPE_CHECKING:
    from pocketmq.store.following import EntryListener, Following
    from pocketmq.store.queue.offset_by_time import Boundary
    from pocketmq.store.queue.topic_retention import Reserved, TopicRetention

log = logging.getLogger(__name__)

_IDLE_S = 60.0
_NOT_DONE = {
    (
        "cleanup.policy",
        "COMPACTION",
    ): "a compacted topic is served from the log, as any other, and deleted with "
    "it: copy what is only in RocketMQ's folder `compaction` by a consumer there, before that",
}


class BackgroundWork:
    """The tasks of an open store, in a TaskGroup of their own."""

    def __init__(self) -> None:
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []

    async def start(self, work: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Run these until `stop`, under their names."""
        self._tasks = await asyncio.TaskGroup().__aenter__()
        start = self._tasks.create_task
        self._running = [start(run, name=name) for name, run in work.items()]

    async def stop(self) -> None:
        """Cancel all, and wait for their ends."""
        for task in self._running:
            task.cancel()
        self._running = []
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(None, None, None)


class MessageStore:
    """See the head of the file."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock,
        store_host: bytes,
        arrivals: "EntryListener | None" = None,
    ) -> None:
        """store_host: IP bytes and 4-byte port (8 or 20 bytes), as written into every record; arrivals: the
        listener for new entries.
        """
        self.config = config
        self.recovery = RecoveryReport()
        self._clock = clock
        root = config.store_path_root_dir
        log_folder = config.store_path_commit_log or os.path.join(root, "commitlog")
        if "," in log_folder:
            raise RecordIllegal(
                f"storePathCommitLog names several directories, {log_folder}: PocketMQ keeps the log in "
                "one. Move the files of all of them into one folder, under the names they have, and set "
                "storePathCommitLog to that"
            )
        self.commit_log = CommitLog(log_folder, config.mapped_file_size_commit_log)
        self.table = ConsumeQueueTable(
            self.config.store_path_root_dir,
            config.consume_queue_file_size,
            batch_file_size=config.mapped_file_size_batch_consume_queue,
            ext_file_size=config.consume_queue_ext_file_size,
            store_host_size=len(store_host),
            long_topics=config.auto_message_version_on_topic_len,
        )
        # Set by close(): all that was acknowledged is on the disk, and the files say so.
        self.closed_cleanly = False
        self.side_tasks = SideTasks(clock)
        # While the log is a master's: what takes its bytes.
        self.following: Following | None = None
        # Set before the store is opened: it begins as a slave's.
        self.opens_following = False
        self.index = IndexService(
            os.path.join(self.config.store_path_root_dir, "index"),
            config,
            self.commit_log,
            clock,
            self.side_tasks,
        )
        self.reads = Reads(config, self.commit_log, self.table, self.index)
        files = AppendedFiles(self.commit_log, self.table, self.index)
        self.appends = Appends(config, files, clock.now_ms, store_host, arrivals)
        self.lock = StoreLock(self.config.store_path_root_dir)
        self._abort = AbortFile(self.config.store_path_root_dir)
        self._pool: Threads | None = None
        self.flushing: Flush | None = None
        self.retention: Retention | None = None
        self.topic_retention: TopicRetention | None = None
        self._background = BackgroundWork()

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        """Load, recover, start the background work.

        Raises: StoreLocked, StoreForeign, StoreUnreadable, DiskFull.
        """
        self.open()
        assert self.flushing is not None
        assert self.retention is not None
        assert self._pool is not None
        repeat = self.side_tasks.repeat
        await self._background.start(
            {
                "store-flush-log": self.flushing.run_log(),
                "store-checkpoint": self.flushing.run_queues(),
                "store-index": repeat("index", self.index.round),
                "store-retention": repeat("retention", self.retention.round),
                "store-idle-queues": self._release_idle(),
                "store-preallocation": Preallocation(self.commit_log, self._pool).run(
                    self.side_tasks
                ),
            }
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop the background work, flush everything, record in the files that the stop was clean."""
        try:
            await self._background.stop()
        finally:
            self.close()

    def open(self) -> None:
        """Load and recover, without background work: the first step of `async with`. Blocks."""
        try:
            os.makedirs(self.config.store_path_root_dir, exist_ok=True)
        except OSError as error:
            raise StoreUnreadable(self.config.store_path_root_dir, error) from error
        with contextlib.suppress(OSError):
            fill_spares()
        self.lock.acquire()
        try:
            self._load()
        except BaseException:
            self._close_files()
            raise

    def _load(self) -> None:
        refuse_foreign(self.config.store_path_root_dir)
        last_stop = self._abort.last_stop()
        clean = last_stop is LastStop.CLEAN
        checkpoint = Checkpoint.load(os.path.join(self.config.store_path_root_dir, "checkpoint"))
        self.commit_log.files.load(file_size=checkpoint.log_file_size or None)
        self.table.batch_topics.update(_batch_topics(self.config.store_path_root_dir))
        self.table.load(checkpoint.queue_file_size or None)
        # A crash amid a recovery that looks at everything has to be followed by another one.
        if last_stop is not LastStop.FORGOTTEN:
            self._abort.create(whole=last_stop is not LastStop.UNKNOWN)
        if checkpoint.log_ms and not checkpoint.ours:
            # A broker that does not know them may have cut the log, and written anew, where they point.
            self.table.deleted.settle(0, 0)
        recovery = Recovery(
            self.config.store_path_root_dir,
            self.commit_log,
            self.table,
            checkpoint,
            last_stop=last_stop,
            delay_levels=self.delay_levels,
        )
        self.index.load(clean=clean, checkpoint_index_ms=checkpoint.index_ms)
        if last_stop is LastStop.FORGOTTEN:
            log.warning(
                "an fsync failed before this start: rewriting what may not have reached the disk"
            )
            self.index.write_again()
        self.recovery = report = recovery.run(
            follows=self.opens_following, now_ms=self._clock.now_ms()
        )
        self.table.deleted.settle(self.commit_log.min_position, report.end)
        self.table.finish_removals()
        self._abort.create(whole=True)
        self.table.use()
        self.reads.verification.start(report)
        self._pool = Threads(2, "store")
        files = FlushedFiles(self.commit_log, self.table, self.index, self._abort)
        self.flushing = Flush(
            self.config, files, checkpoint, self._pool, self.refuse, self.side_tasks
        )
        # What an earlier process wrote and did not flush is flushed with the first checkpoint.
        self.flushing.flushed_position = (
            min(checkpoint.flushed_position, report.end) if checkpoint.ours else report.checked_from
        )
        checkpoint.boundary = report.checked_from
        self.retention = Retention(
            self.config,
            files,
            self._clock,
            self._pool,
            self.refuse,
            self._is_unneeded,
        )
        self.index.recover(
            checked_from=report.checked_from,
            known_position=checkpoint.indexed_position if checkpoint.ours else 0,
            known_ms=checkpoint.index_ms,
        )
        self.appends.refusal = None
        if self.opens_following:
            self.follow()

    async def _release_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_S)
            self.table.release_idle()

    def flush_now(self) -> None:
        """Flush everything, blocking: for a stop. Raises: OSError, StoreError."""
        if self.flushing is None:
            raise StoreClosed
        self.flushing.flush_all_now()

    def close(self) -> None:
        """Flush, write the checkpoint, remove `abort`, unlock. Blocks. Never stops half-way.

        `closed_cleanly` says whether everything was flushed.
        """
        if self.flushing is None:
            return
        flush, self.flushing = self.flushing, None
        if self.following is not None:
            self.following.drop_rest()
        self.appends.refusal = self.appends.refusal or StoreClosed()
        self.commit_log.limit = -1
        try:
            if flush.failed is None:
                self.index.finish()
                flush.flush_all_now()
                self._abort.remove()
                self.closed_cleanly = True
        except (OSError, StoreError) as error:
            log.critical("the last flush failed; the next start recovers the store error=%s", error)
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None
            if not self.closed_cleanly:
                self._abort.note_failed_fsync()
            self._close_files()

    def _close_files(self) -> None:
        self.index.close()
        self.commit_log.close()
        self.table.close()
        self._abort.close()
        self.lock.release()

    def refuse(self, refusal: StoreNotWriteable | None) -> None:
        """Stop appending with this error, or resume with None (not after an fsync error)."""
        if self.flushing is None or self.flushing.failed is not None:
            refusal = self.flushing.failed if self.flushing is not None else StoreClosed()
        elif refusal is None and self.following is not None:
            refusal = StoreFollows()
        self.appends.refuse(refusal)

    # ------------------------------------------------------------ following

    def follow(self) -> "Following":
        """Follow a master: nothing else is appended. Returns: what receives its bytes."""
        # Lazy, as what is below: a start of a master needs neither.
        from pocketmq.store.following import Following

        self.commit_log.drop_ahead()
        self.following = Following(
            self.commit_log, self.table, self.index, self.delay_levels, self.appends.arrivals
        )
        self.refuse(StoreFollows())
        return self.following

    def lead(self) -> None:
        """Append messages again, behind the last whole record received."""
        following, self.following = self.following, None
        if following is not None:
            following.drop_rest()
            self.commit_log.drop_ahead()
            self.refuse(None)
            if self.retention is not None:
                self.retention.look_again()

    def cut_back(self, end: int) -> list[str]:
        """Truncate the log at `end`, where a record begins and the master's log diverges. Blocks.

        Only while the store follows. Returns: the files that keep what was cut off. Raises: OSError,
        StoreError.
        """
        from pocketmq.store.repair.kept_rest import keep_rest

        assert self.following is not None
        assert self.flushing is not None
        self.following.drop_rest()
        kept = keep_rest(
            self.config.store_path_root_dir,
            self.commit_log,
            end,
            size_max=self.commit_log.file_size,
        )
        for topic in self.table.topics():
            for queue in self.table.of_topic(topic):
                queue.truncate(end)
        self.table.deleted.settle(self.commit_log.min_position, end)
        # What it names may be behind the end now.
        self.flushing.checkpoint.boundary = -1
        self.commit_log.open_at(end)
        self.commit_log.limit = -1
        self.index.cut(end)
        self.flushing.flushed_position = min(self.flushing.flushed_position, end)
        self.flushing.flush_all_now()
        self.follow()
        return kept

    def boundary_before(self, position: int) -> int:
        """See last_record.py."""
        from pocketmq.store.last_record import boundary_before

        return boundary_before(self.commit_log, position)

    def last_record_before(self, position: int) -> tuple[int, int] | None:
        """See last_record.py."""
        from pocketmq.store.last_record import last_record_before

        return last_record_before(self.commit_log, position)

    @property
    def log_is_empty(self) -> bool:
        """Return True if there is not a byte of a log."""
        return not self.commit_log.files.files

    @property
    def log_file_size(self) -> int:
        """Return the size of each file of the log, bytes."""
        return self.commit_log.file_size

    def use_log_file_size(self, size: int) -> None:
        """Set the file size of an empty log, to match the master's."""
        assert self.log_is_empty
        self.commit_log.files.file_size = size

    def raw(self, position: int, size_max: int) -> memoryview | None:
        """Return raw bytes of the log, for a slave: see CommitLog.stretch."""
        return self.commit_log.stretch(position, size_max)

    @property
    def writable(self) -> bool:
        """Return True if the next append is expected to succeed."""
        return self.appends.refusal is None

    @property
    def refusal(self) -> StoreNotWriteable | None:
        """Return why nothing is appended now; None if it is."""
        return self.appends.refusal

    def take_settings(self) -> None:
        """Apply changed settings that are not read each time they count."""
        self.table.keep_ext(self.config.consume_queue_ext_file_size)

    @property
    def delay_levels(self) -> Sequence[int]:
        """Return the delays of the levels, ms."""
        return self.appends.delay_levels

    @property
    def deleted(self) -> DeletedQueues:
        """Return what is known of deleted queues."""
        return self.table.deleted

    # ------------------------------------------------------------ appends

    def append(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        tags_code: int | None = None,
    ) -> Appended:
        """See Appends."""
        return self.appends.append(
            topic,
            queue_id,
            body,
            properties,
            flag,
            sys_flag,
            born_ms,
            born_host,
            reconsume_times,
            prepared_offset,
            tags_code,
        )

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        outer_properties: bytes,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
    ) -> AppendedBatch:
        """See Appends."""
        return self.appends.append_batch(
            topic, queue_id, batch, outer_properties, sys_flag, born_ms, born_host
        )

    def of_any_size(self) -> contextlib.AbstractContextManager[None]:
        """See Appends."""
        return self.appends.of_any_size()

    def flushed(self, position: int) -> "asyncio.Future[None] | None":
        """Wait until the log is on disk up to `position` (the end of a record: position + size).

        Returns: None if it already is; else a future that many waiters share, so none may cancel it: wait
        with asyncio.wait or a shield, or add a callback. It fails with FlushFailed after an fsync error, and
        so does every later one.
        """
        if self.flushing is None:
            raise StoreClosed
        return self.flushing.wait_for(position)

    def on_disk(self) -> Coroutine[Any, Any, None]:
        """Wait until everything appended so far is on disk. Raises: FlushFailed, StoreClosed."""
        return until_flushed(self.flushed(self.commit_log.end))

    # ------------------------------------------------------------ reads

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        matches: EntryFilter | None = None,
        size_max: int = 262144,
    ) -> ReadResult:
        """See Reads."""
        return self.reads.read(topic, queue_id, queue_offset, count_max, matches, size_max)

    def record_at(self, position: int, size: int = 1) -> memoryview | None:
        """See Reads."""
        return self.reads.record_at(position, size)

    def message_at(self, position: int) -> memoryview | None:
        """See Reads."""
        return self.reads.message_at(position)

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """See Reads."""
        return self.reads.entries(topic, queue_id, queue_offset, count)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """See Reads."""
        return self.reads.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """See Reads."""
        return self.reads.max_offset(topic, queue_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """See Reads."""
        return self.reads.next_offset(topic, queue_id)

    def is_open(self, topic: str, queue_id: int) -> bool:
        """See Reads."""
        return self.reads.is_open(topic, queue_id)

    @property
    def closings(self) -> int:
        """See Reads."""
        return self.reads.closings

    def backlog(self, topic: str, queue_id: int, offset: int) -> Backlog:
        """See Reads."""
        return self.reads.backlog(topic, queue_id, offset)

    def queues(self, topic: str | None = None) -> list[tuple[str, int]]:
        """See Reads."""
        return self.reads.queues(topic)

    def open_queues(self) -> list[tuple[str, int]]:
        """See Reads."""
        return self.reads.open_queues()

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """See Reads."""
        return self.reads.store_time_at(topic, queue_id, queue_offset)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """See Reads."""
        return self.reads.earliest_time(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: "Boundary" = "NEAREST"
    ) -> int:
        """See Reads."""
        return self.reads.offset_by_time(topic, queue_id, time_ms, boundary)

    def ext_unit(self, topic: str, queue_id: int, code: int) -> ExtUnit | None:
        """See Reads."""
        return self.reads.ext_unit(topic, queue_id, code)

    def query_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """See Reads."""
        return self.reads.query_by_key(topic, key, count_max, begin_ms, end_ms)

    def records_of_key(self, topic: str, key: bytes, after: int) -> Iterator[Record]:
        """See Reads."""
        return self.reads.records_of_key(topic, key, after)

    # ------------------------------------------------------------ deleting

    def topics(self) -> list[str]:
        """Return the topics that have queues."""
        return self.table.topics()

    def delete_topic(self, topic: str) -> int:
        """Delete the queues of a topic; its records stay in the log until that expires.

        Messages that wait for it elsewhere are dropped when they are due. Returns: how many queues.
        """
        return self.table.remove_topic(topic, self.commit_log.end)

    def take_deleted(self, rows: Iterable[Any]) -> None:
        """Delete what a master has deleted; its log has brought it. Raises: TypeError, ValueError."""
        if self.deleted.add(rows):
            self.table.finish_removals()

    def clean_unused_topics(self, keep: set[str]) -> list[str]:
        """Delete the queues of every topic that is not in `keep`. Returns: the topics deleted."""
        unused = sorted({*self.table.topics()} - keep - {SCHEDULE_TOPIC})
        for topic in unused:
            self.delete_topic(topic)
        return unused

    def clean_expired_consume_queues(self, keep: Collection[str]) -> int:
        """Delete queues whose records are all gone from the log, except for topics in `keep`.

        A deleted queue begins at offset 0 again. Returns: how many.
        """
        count = 0
        for topic in {*self.table.topics()} - {*keep, SCHEDULE_TOPIC}:
            for queue in self.table.of_topic(topic):
                # One whose messages have expired has no last position, and keeps its offsets.
                if queue.max_offset and 0 < queue.max_position <= self.commit_log.min_position:
                    self.table.remove([queue])
                    count += 1
        return count

    def reserve(self, reserved: "dict[str, Reserved]") -> None:
        """Set the topics that keep less than the log; `topic_retention` expires what is beyond."""
        if self.topic_retention is None:
            if not reserved:
                return
            from pocketmq.store.queue.topic_retention import TopicRetention

            self.topic_retention = TopicRetention(
                self.table, self.reads, lambda: self.commit_log.min_position, self._clock
            )
        self.topic_retention.keep(reserved)

    def _is_unneeded(self, log_position: int) -> bool:
        return self.topic_retention is not None and self.topic_retention.is_unneeded(log_position)

    def delete_expired_files(self, *, manual: bool = True) -> int:
        """Delete what is older than fileReservedTime now, at any hour. Blocks while files are unlinked.

        Returns: how many commit log files. Raises: OSError.
        """
        if self.retention is None:
            raise StoreClosed
        files = self.retention.step(manual=manual)
        self.retention.delete_left()
        if files:
            self.retention.delete_of(self.table.rows())
        return len(files)

    # ------------------------------------------------------------ numbers

    @property
    def commit_log_min_position(self) -> int:
        return self.commit_log.min_position

    @property
    def commit_log_max_position(self) -> int:
        return self.commit_log.end

    @property
    def flushed_position(self) -> int:
        """Return the position before which everything in the log is on disk."""
        return 0 if self.flushing is None else self.flushing.flushed_position

    @property
    def flush_behind_size(self) -> int:
        """Return the bytes of the log that are not on disk yet."""
        return max(0, self.commit_log.end - self.flushed_position)

    @property
    def dispatch_behind_size(self) -> int:
        """Return the bytes of the log that are not in the index yet; queue entries never lag."""
        return max(0, self.commit_log.end - self.index.indexed_position)

    @property
    def topic_size_max(self) -> int:
        """Return the maximum size of a topic's name, bytes."""
        return self.table.topic_size_max

    @property
    def disk_use(self) -> float:
        """Return the used share of the disk, 0..1."""
        return disk_use(self.commit_log.files.folder)

    @property
    def store_ms(self) -> int:
        """Return the store time of the newest record; 0 in an empty store."""
        return self.commit_log.store_ms


def _batch_topics(root: str) -> set[str]:
    """Return the topics of RocketMQ 5.x that declare their queues as BatchConsumeQueues.

    Those that declare what we do not do are logged.
    """
    value = ConfigFile(os.path.join(root, "config", "topics.json")).load()
    table = value.get("topicConfigTable") if isinstance(value, dict) else None
    found: set[str] = set()
    for topic, config in (table or {}).items():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict):
            if attributes.get(QUEUE_TYPE) == BATCH_QUEUE:
                found.add(topic)
            for attribute, what in _NOT_DONE.items():
                if attribute in attributes.items():
                    log.warning("%s topic=%s", what, topic)
    return found
