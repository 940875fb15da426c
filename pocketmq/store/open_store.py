"""OpenStore: opens, recovers, maintains and closes the files of one store directory.

The base of MessageStore, which appends and reads. Here is everything around that: lock, recovery, background
work, refusing appends when the disk fails, deleting, and figures. None of it is on the path of a message.
Owner: as of MessageStore.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Self

from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.threads import Threads
from pocketmq.store.config_file import ConfigFile
from pocketmq.store.errors import (
    RecordIllegal,
    StoreClosed,
    StoreError,
    StoreFollows,
    StoreNotWriteable,
    StoreUnreadable,
)
from pocketmq.store.following import EntryListener, Following
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.last_record import boundary_before, last_record_before
from pocketmq.store.log.checkpoint import Checkpoint
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.descriptors import fill_spares
from pocketmq.store.log.flush import Flush, FlushedFiles
from pocketmq.store.log.preallocation import Preallocation
from pocketmq.store.log.retention import Retention, disk_use
from pocketmq.store.message_reader import MessageReader
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ExtUnit
from pocketmq.store.queue.consume_queue_table import BATCH_QUEUE, QUEUE_TYPE, ConsumeQueueTable
from pocketmq.store.queue.tags_code import parse_delay_levels
from pocketmq.store.repair.recovery import Recovery, RecoveryReport, keep_rest
from pocketmq.store.repair.unsupported import refuse_foreign
from pocketmq.store.repair.verification import Verification
from pocketmq.store.side_tasks import SideTasks
from pocketmq.store.store_config import StoreConfig
from pocketmq.store.store_lock import AbortFile, LastStop, StoreLock

log = logging.getLogger(__name__)

_IDLE_S = 60.0
_NOT_DONE = {
    (
        "cleanup.policy",
        "COMPACTION",
    ): "a compacted topic is served from the log, as any other, and deleted with "
    "it: copy what is only in RocketMQ's folder `compaction` by a consumer there, before that",
    (
        "message.type",
        "LITE",
    ): "of a lite topic PocketMQ serves all messages in one, and not the lite topics in it",
}


class OpenStore:
    """See the head of the file."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock,
        store_host_size: int,
        arrivals: EntryListener | None = None,
    ) -> None:
        """store_host_size: bytes of the address in every record, 8 or 20; arrivals: see EntryListener."""
        self.config = config
        self.recovery = RecoveryReport()
        self._clock = clock
        self._arrivals = arrivals
        self._root = config.store_path_root_dir
        log_folder = config.store_path_commit_log or os.path.join(self._root, "commitlog")
        if "," in log_folder:
            raise RecordIllegal(
                f"storePathCommitLog names several directories, {log_folder}: PocketMQ keeps the log in "
                "one. Move the files of all of them into one folder, under the names they have, and set "
                "storePathCommitLog to that"
            )
        self._log = CommitLog(log_folder, config.mapped_file_size_commit_log)
        self._table = ConsumeQueueTable(
            self._root,
            config.consume_queue_file_size,
            batch_file_size=config.mapped_file_size_batch_consume_queue,
            ext_file_size=config.consume_queue_ext_file_size,
            store_host_size=store_host_size,
            long_topics=config.auto_message_version_on_topic_len,
        )
        self._queues = self._table.queues
        self.deleted = self._table.deleted
        self._body_size_max = config.max_message_size
        self.delay_levels = parse_delay_levels(config.message_delay_level)
        # Set by close(): all that was acknowledged is on the disk, and the files say so.
        self.closed_cleanly = False
        self.side_tasks = SideTasks(clock)
        # While the log is a master's: what takes its bytes.
        self.following: Following | None = None
        # Set before the store is opened: it begins as a slave's.
        self.opens_following = False
        self._refusal: StoreNotWriteable | None = StoreClosed()
        self._index = IndexService(
            os.path.join(self._root, "index"), config, self._log, clock, self.side_tasks
        )
        self._verification = Verification(self._log)
        self._reader = MessageReader(self._log, self._verification, self._ext_unit)
        self._lock = StoreLock(self._root)
        self._abort = AbortFile(self._root)
        self._pool: Threads | None = None
        self._flush: Flush | None = None
        self._retention: Retention | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        """Load, recover, start the background work.

        Raises: StoreLocked, StoreForeign, StoreUnreadable, DiskFull.
        """
        self.open()
        assert self._flush is not None
        assert self._retention is not None
        assert self._pool is not None
        self._tasks = await asyncio.TaskGroup().__aenter__()
        start = self._tasks.create_task
        repeat = self.side_tasks.repeat
        self._running = [
            start(self._flush.run_log(), name="store-flush-log"),
            start(self._flush.run_queues(), name="store-checkpoint"),
            start(repeat("index", self._index.round), name="store-index"),
            start(repeat("retention", self._retention.round), name="store-retention"),
            start(self._release_idle(), name="store-idle-queues"),
            start(
                Preallocation(self._log, self._pool).run(self.side_tasks),
                name="store-preallocation",
            ),
        ]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop the background work, flush everything, record in the files that the stop was clean."""
        for task in self._running:
            task.cancel()
        self._running = []
        try:
            if self._tasks is not None:
                tasks, self._tasks = self._tasks, None
                await tasks.__aexit__(None, None, None)
        finally:
            self.close()

    def open(self) -> None:
        """Load and recover, without background work: the first step of `async with`. Blocks."""
        try:
            os.makedirs(self._root, exist_ok=True)
        except OSError as error:
            raise StoreUnreadable(self._root, error) from error
        with contextlib.suppress(OSError):
            fill_spares()
        self._lock.acquire()
        try:
            self._load()
        except BaseException:
            self._close_files()
            raise

    def _load(self) -> None:
        refuse_foreign(self._root)
        last_stop = self._abort.last_stop()
        clean = last_stop is LastStop.CLEAN
        checkpoint = Checkpoint.load(os.path.join(self._root, "checkpoint"))
        self._log.files.load(file_size=checkpoint.log_file_size or None)
        self._table.batch_topics.update(_batch_topics(self._root))
        self._table.load(checkpoint.queue_file_size or None)
        # A crash amid a recovery that looks at everything has to be followed by another one.
        if last_stop is not LastStop.FORGOTTEN:
            self._abort.create(whole=last_stop is not LastStop.UNKNOWN)
        if checkpoint.log_ms and not checkpoint.ours:
            # A broker that does not know them may have cut the log, and written anew, where they point.
            self._table.deleted.settle(0, 0)
        recovery = Recovery(
            self._root,
            self._log,
            self._table,
            checkpoint,
            last_stop=last_stop,
            delay_levels=self.delay_levels,
        )
        self._index.load(clean=clean, checkpoint_index_ms=checkpoint.index_ms)
        if last_stop is LastStop.FORGOTTEN:
            log.warning(
                "an fsync failed before this start: rewriting what may not have reached the disk"
            )
            self._index.write_again()
        self.recovery = report = recovery.run(
            follows=self.opens_following, now_ms=self._clock.now_ms()
        )
        self._table.deleted.settle(self._log.min_position, report.end)
        self._table.finish_removals()
        self._abort.create(whole=True)
        self._table.use()
        self._verification.start(report)
        self._pool = Threads(2, "store")
        files = FlushedFiles(self._log, self._table, self._index, self._abort)
        self._flush = Flush(
            self.config, files, checkpoint, self._pool, self._refuse, self.side_tasks
        )
        # What an earlier process wrote and did not flush is flushed with the first checkpoint.
        self._flush.flushed_position = (
            min(checkpoint.flushed_position, report.end) if checkpoint.ours else report.checked_from
        )
        checkpoint.boundary = report.checked_from
        self._retention = Retention(self.config, files, self._clock, self._pool, self._refuse)
        self._index.recover(
            checked_from=report.checked_from,
            known_position=checkpoint.indexed_position if checkpoint.ours else 0,
            known_ms=checkpoint.index_ms,
        )
        self._refusal = None
        if self.opens_following:
            self.follow()

    async def _release_idle(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_S)
            self._table.release_idle()

    def flush_now(self) -> None:
        """Flush everything, blocking: for a stop. Raises: OSError, StoreError."""
        if self._flush is None:
            raise StoreClosed
        self._flush.flush_all_now()

    def close(self) -> None:
        """Flush, write the checkpoint, remove `abort`, unlock. Blocks. Never stops half-way.

        `closed_cleanly` says whether everything was flushed.
        """
        if self._flush is None:
            return
        flush, self._flush = self._flush, None
        if self.following is not None:
            self.following.drop_rest()
        self._refusal = self._refusal or StoreClosed()
        self._log.limit = -1
        try:
            if flush.failed is None:
                self._index.finish()
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
        self._index.close()
        self._log.close()
        self._table.close()
        self._abort.close()
        self._lock.release()

    def _refuse(self, refusal: StoreNotWriteable | None) -> None:
        """Stop appending with this error, or resume with None (not after an fsync error)."""
        if self._flush is None or self._flush.failed is not None:
            refusal = self._flush.failed if self._flush is not None else StoreClosed()
        elif refusal is None and self.following is not None:
            refusal = StoreFollows()
        self._refusal = refusal
        # Below zero: the next append comes to _make_room, which raises it.
        self._log.limit = -1 if refusal is not None else 0

    # ------------------------------------------------------------ following

    def follow(self) -> Following:
        """Follow a master: nothing else is appended. Returns: what receives its bytes."""
        self._log.drop_ahead()
        self.following = Following(
            self._log, self._table, self._index, self.delay_levels, self._arrivals
        )
        self._refuse(StoreFollows())
        return self.following

    def lead(self) -> None:
        """Append messages again, behind the last whole record received."""
        following, self.following = self.following, None
        if following is not None:
            following.drop_rest()
            self._log.drop_ahead()
            self._refuse(None)
            if self._retention is not None:
                self._retention.look_again()

    def cut_back(self, end: int) -> list[str]:
        """Truncate the log at `end`, where a record begins and the master's log diverges. Blocks.

        Only while the store follows. Returns: the files that keep what was cut off. Raises: OSError,
        StoreError.
        """
        assert self.following is not None
        assert self._flush is not None
        self.following.drop_rest()
        kept = keep_rest(self._root, self._log, end, size_max=self._log.file_size)
        for topic in self._table.topics():
            for queue in self._table.of_topic(topic):
                queue.truncate(end)
        self._table.deleted.settle(self._log.min_position, end)
        # What it names may be behind the end now.
        self._flush.checkpoint.boundary = -1
        self._log.open_at(end)
        self._log.limit = -1
        self._index.cut(end)
        self._flush.flushed_position = min(self._flush.flushed_position, end)
        self._flush.flush_all_now()
        self.follow()
        return kept

    def boundary_before(self, position: int) -> int:
        """See last_record.py."""
        return boundary_before(self._log, position)

    def last_record_before(self, position: int) -> tuple[int, int] | None:
        """See last_record.py."""
        return last_record_before(self._log, position)

    @property
    def log_is_empty(self) -> bool:
        """Return True if there is not a byte of a log."""
        return not self._log.files.files

    @property
    def log_file_size(self) -> int:
        """Return the size of each file of the log, bytes."""
        return self._log.file_size

    def use_log_file_size(self, size: int) -> None:
        """Set the file size of an empty log, to match the master's."""
        assert self.log_is_empty
        self._log.files.file_size = size

    def raw(self, position: int, size_max: int) -> memoryview | None:
        """Return raw bytes of the log, for a slave: see CommitLog.stretch."""
        return self._log.stretch(position, size_max)

    @property
    def writable(self) -> bool:
        """Return True if the next append is expected to succeed."""
        return self._refusal is None

    @property
    def refusal(self) -> StoreNotWriteable | None:
        """Return why nothing is appended now; None if it is."""
        return self._refusal

    def take_settings(self) -> None:
        """Apply changed settings that are not read each time they count."""
        self._table.keep_ext(self.config.consume_queue_ext_file_size)

    def _ext_unit(self, queue: ConsumeQueue, code: int) -> ExtUnit | None:
        ext = self._table.ext(queue)
        return None if ext is None else ext.get(code)

    @contextlib.contextmanager
    def of_any_size(self) -> Iterator[None]:
        """Take copies of stored messages: maxMessageSize was for their senders, and may be smaller now."""
        size_max, self._body_size_max = self._body_size_max, sys.maxsize
        try:
            yield
        finally:
            self._body_size_max = size_max

    # ------------------------------------------------------------ deleting

    def topics(self) -> list[str]:
        """Return the topics that have queues."""
        return self._table.topics()

    def delete_topic(self, topic: str) -> int:
        """Delete the queues of a topic; its records stay in the log until that expires.

        Messages that wait for it elsewhere are dropped when they are due. Returns: how many queues.
        """
        return self._table.remove_topic(topic, self._log.end)

    def take_deleted(self, rows: Iterable[Any]) -> None:
        """Delete what a master has deleted; its log has brought it. Raises: TypeError, ValueError."""
        if self.deleted.add(rows):
            self._table.finish_removals()

    def clean_unused_topics(self, keep: set[str]) -> list[str]:
        """Delete the queues of every topic that is not in `keep`. Returns: the topics deleted."""
        unused = sorted({*self._table.topics()} - keep - {SCHEDULE_TOPIC})
        for topic in unused:
            self.delete_topic(topic)
        return unused

    def clean_expired_consume_queues(self, keep: Collection[str]) -> int:
        """Delete queues whose records are all gone from the log, except for topics in `keep`.

        A deleted queue begins at offset 0 again. Returns: how many.
        """
        count = 0
        for topic in {*self._table.topics()} - {*keep, SCHEDULE_TOPIC}:
            for queue in self._table.of_topic(topic):
                if queue.max_offset and queue.max_position <= self._log.min_position:
                    self._table.remove([queue])
                    count += 1
        return count

    def delete_expired_files(self, *, manual: bool = True) -> int:
        """Delete what is older than fileReservedTime now, at any hour. Blocks while files are unlinked.

        Returns: how many commit log files. Raises: OSError.
        """
        if self._retention is None:
            raise StoreClosed
        files = self._retention.step(manual=manual)
        self._retention.delete_left()
        if files:
            self._retention.delete_of(self._table.rows())
        return len(files)

    # ------------------------------------------------------------ numbers

    @property
    def commit_log_min_position(self) -> int:
        return self._log.min_position

    @property
    def commit_log_max_position(self) -> int:
        return self._log.end

    @property
    def flushed_position(self) -> int:
        """Return the position before which everything in the log is on disk."""
        return 0 if self._flush is None else self._flush.flushed_position

    @property
    def flush_behind_size(self) -> int:
        """Return the bytes of the log that are not on disk yet."""
        return max(0, self._log.end - self.flushed_position)

    @property
    def dispatch_behind_size(self) -> int:
        """Return the bytes of the log that are not in the index yet; queue entries never lag."""
        return max(0, self._log.end - self._index.indexed_position)

    @property
    def topic_size_max(self) -> int:
        """Return the maximum size of a topic's name, bytes."""
        return self._table.topic_size_max

    @property
    def disk_use(self) -> float:
        """Return the used share of the disk, 0..1."""
        return disk_use(self._log.files.folder)

    @property
    def store_ms(self) -> int:
        """Return the store time of the newest record; 0 in an empty store."""
        return self._log.store_ms


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
