"""Retention: which files are deleted, and when. Source: CleanCommitLogService, RocketMQ 4.9.7; disk.md 16.

    disk use             commit log files to delete
    any, hour is right   older than fileReservedTime
    > 75 %, any hour     older than fileReservedTime
    > 85 %               the oldest, whatever their age
    > 90 %               the same, and nothing is appended any more

1. Oldest first, at most deleteFileBatchMax per round, never the last file; the first that must stay ends the
   round.
2. Then queue and index files whose records are all gone, never the last of each.
3. A file's age counts from its last write (modification time).
4. PocketMQ only: at any hour a file goes in which no queue has a message left (queue/topic_retention.py).
5. PocketMQ only: with waitForArchive a file's age counts only once an archive has it (layout.ARCHIVED). Above
   85 % it is deleted all the same: a broker that accepts no messages helps no archive.
Owner: MessageStore. Files leave the lists on the loop; they are unlinked in the pool.
"""

import asyncio
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from pocketmq.files.layout import ARCHIVED
from pocketmq.remoting.clock import Clock
from pocketmq.store.errors import DiskFull, StoreNotWriteable
from pocketmq.store.log.flush import FlushedFiles
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.store_config import StoreConfig

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


def disk_use(path: str) -> float:
    """Return the used share of the file system that holds `path`, 0..1, as df shows it."""
    while True:
        try:
            status = os.statvfs(path)
            break
        except FileNotFoundError:
            path = os.path.dirname(path) or "."
    used = status.f_blocks - status.f_bfree
    entire = used + status.f_bavail
    return used / entire if entire else 0.0


class Retention:
    """Deletes what is old."""

    def __init__(
        self,
        config: StoreConfig,
        files: FlushedFiles,
        clock: Clock,
        pool: Executor,
        refuse: Callable[[StoreNotWriteable | None], None],
        is_unneeded: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """is_unneeded: whether no queue has a message before a position of the log."""
        self._config = config
        self._log, self._table, self._index, _ = files
        self._clock = clock
        self._pool = pool
        self._refuse = refuse
        self._refusing = False
        # The file that waits for the archive.
        self._awaited = ""
        # Out of the log, not deleted yet.
        self._leaving: deque[MappedFile] = deque()
        self.disk_use = 0.0
        self._is_unneeded = is_unneeded
        # Handed in by tests.
        self.measure_disk_use: Callable[[str], float] = disk_use

    async def round(self) -> None:
        """Wait cleanResourceInterval, then delete what may be deleted."""
        await asyncio.sleep(self._config.clean_resource_interval / 1000)
        gone = self.step()
        in_pool = asyncio.get_running_loop().run_in_executor
        if self._leaving:
            await in_pool(self._pool, self.delete_left)
        if gone:
            self.delete_of(await in_pool(self._pool, self._table.rows))

    def step(self, *, manual: bool = False) -> list[MappedFile]:
        """Run one round. Returns: the files that left the store; delete_left unlinks them."""
        self.check_disk()
        use, config = self.disk_use, self._config
        forced = use > config.disk_space_clean_forcibly_ratio and config.clean_file_forcibly_enable
        is_due = (
            manual or forced or use > config.disk_max_used_space_ratio / 100 or self._is_the_hour()
        )
        reserved_ms = config.file_reserved_time * _HOUR_MS
        files = self._log.files.files
        archived = self._archived_to() if config.wait_for_archive else None
        gone: list[MappedFile] = []
        while len(files) > 1 and (manual or len(gone) < config.delete_file_batch_max):
            is_old = forced or (is_due and self._age_ms(files[0].path) >= reserved_ms)
            if not is_old and not self._is_unneeded(files[0].end):
                break
            if archived is not None and files[0].end > archived:
                self._say_unarchived(files[0].path, forced=forced)
                if not forced:
                    break
            gone.append(files[0])
            self._leaving.append(files.pop(0))
        if gone:
            log.info(
                "deleting commit log files count=%d first=%s log_begins_at=%d disk_use=%.2f",
                len(gone),
                gone[0].path,
                self._log.min_position,
                use,
            )
            self.delete_followers()
        return gone

    def _archived_to(self) -> int:
        """Return where the archive ends in the log; 0 without an archive."""
        try:
            with open(
                os.path.join(os.path.dirname(self._log.files.folder), ARCHIVED), "rb"
            ) as file:
                return int(json.load(file)["position"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0

    def _say_unarchived(self, path: str, *, forced: bool) -> None:
        if forced:
            log.error(
                "deleting a file that has not been archived path=%s disk_use=%.2f; archive more often",
                path,
                self.disk_use,
            )
        elif path != self._awaited:
            log.warning(
                "keeping an old file that has not been archived path=%s; run: pocketmq "
                "store archive",
                path,
            )
            self._awaited = path

    def delete_left(self) -> None:
        """Unlink removed files, oldest first: a gap would make the sequence unreadable. Blocks.

        Raises: OSError; the rest is retried in the next round.
        """
        while self._leaving:
            file = self._leaving.popleft()
            try:
                file.delete()
            except OSError:
                self._leaving.appendleft(file)
                raise

    def _age_ms(self, path: str) -> int:
        """Return the time since the last write; a file that an operator removed counts as infinitely old."""
        try:
            written_ms = os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            written_ms = 0
        return self._clock.now_ms() - written_ms

    def check_disk(self) -> None:
        """Measure the disk, and stop or resume appending accordingly."""
        self.disk_use = self.measure_disk_use(self._log.files.folder)
        full = self.disk_use > self._config.disk_space_warning_level_ratio
        if full and not self._refusing:
            self._refuse(
                DiskFull(
                    self._log.files.folder,
                    f"{self.disk_use:.0%} used, diskSpaceWarningLevelRatio is "
                    f"{self._config.disk_space_warning_level_ratio:.0%}",
                )
            )
            log.error("the disk is too full, messages are refused use=%.3f", self.disk_use)
        elif self._refusing and not full:
            self._refuse(None)
            log.warning("the disk has room again, messages are accepted use=%.3f", self.disk_use)
        self._refusing = full

    def look_again(self) -> None:
        """Measure the disk again after another part of the store has resumed appending."""
        self._refusing = False
        self.check_disk()

    def delete_followers(self) -> None:
        """Delete files of the index and of open queues whose records are no longer in the log."""
        log_min = self._log.min_position
        for queue in self._table.queues.values():
            queue.delete_before(log_min)
        self._index.delete_before(log_min)

    def delete_of(self, queues: list[tuple[str, int]]) -> None:
        """Do the same for closed queues."""
        for name in queues:
            queue = self._table.get(*name)
            if queue is not None:
                queue.delete_before(self._log.min_position)

    def _is_the_hour(self) -> bool:
        hour = time.localtime(self._clock.now_ms() // 1000).tm_hour
        words = self._config.delete_when.split(";")
        return any(word.strip().isdecimal() and int(word) == hour for word in words)
