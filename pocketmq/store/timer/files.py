"""TimerFiles: wheel, timer log and timercheck, and what of the timers' progress is on disk.

1. timercheck only covers what is on disk: messages read are in the log and the wheel, delivered ones in the
   commit log. It is written after them.
2. After an fsync error nothing is synced any more, as the content on disk is unknown: log_position stays
   where it is, and the next start checks the files from there on.
Owner: TimerService.
"""

import os
from dataclasses import replace

from pocketmq.store.message_store import MessageStore
from pocketmq.store.side_tasks import in_thread
from pocketmq.store.timer.check import TimerCheck, TimerCheckFile, correct
from pocketmq.store.timer.log import TimerLog
from pocketmq.store.timer.recovery import recover
from pocketmq.store.timer.wheel import TimerWheel


class TimerFiles:
    """Attributes: wheel, log, check (the progress of now), done (seconds whose messages were delivered)."""

    def __init__(self, store: MessageStore, root: str, log_file_size: int) -> None:
        self._store = store
        self.wheel = TimerWheel(os.path.join(root, "timerwheel"))
        self.log = TimerLog(os.path.join(root, "timerlog"), log_file_size)
        self.check = TimerCheck()
        self.done = 0
        self._check_file = TimerCheckFile(os.path.join(root, "config", "timercheck"))
        # Whether timercheck says where to begin, and what of the progress it has.
        self._has_begun = False
        self._synced = (0, 0, 0)
        self._sync_error: OSError | None = None

    def load(self, now_second: int) -> None:
        """Open and correct them. Raises: StoreForeign, StoreUnreadable, OSError."""
        self.check = check = self._check_file.load()
        self.wheel.load()
        self.log.load(max(0, check.log_position - self.log.file_size))
        self.revise()
        check.log_position = min(check.log_position, self.log.end)
        self._synced = self._progress()
        correct(check, self.wheel, now_second)
        self._has_begun = check.read_ms != 0
        if not self._has_begun:
            check.read_ms = now_second

    def revise(self) -> None:
        """Make them agree with the store (recovery.py). Raises: StoreError."""
        if recover(self._store, self.wheel, self.log, self.check):
            # Before anything takes the place of what was cut.
            with self._store.side_tasks.attempt("timer-sync"):
                self.sync()

    def begin(self) -> None:
        """Say where to begin, if timercheck does not yet. Raises: StoreError, OSError."""
        if not self._has_begun:
            # A unit without a time to begin at would be taken for delivered, once its second is over.
            self._check_file.save(self.check)
            self._has_begun = True

    def close(self) -> None:
        """Close them; they are synced before."""
        self.wheel.close()
        self.log.close()
        self._check_file.close()

    # ------------------------------------------------------------ on disk

    @property
    def is_behind(self) -> bool:
        """Return True if there is progress that timercheck does not record."""
        return self._progress() != self._synced

    def sync(self) -> None:
        """Sync everything at a stop, the store's log included. Blocks. Raises: OSError, StoreError."""
        self._sync_files()
        if self.is_behind:
            # As in sync_in_pool; the power may go during the stop, too.
            self._store.flush_now()
        self._save(self.check, self.log.end)

    async def sync_in_pool(self) -> None:
        """Sync everything, in a thread. Raises: OSError, StoreError."""
        check, progress = replace(self.check), self._progress()
        await in_thread(self._sync_files)
        await self._store.on_disk()
        await in_thread(lambda: self._save(check, progress[0]))
        self._synced = progress

    def save_back(self, second_ms: int) -> None:
        """Save that delivery begins at an earlier second."""
        if self._has_begun:
            # Before anything is due earlier: a start that took this time for past would skip it.
            _, offset, _ = self._synced
            self._check_file.save(replace(self.check, read_ms=second_ms, queue_offset=offset))

    def _save(self, check: TimerCheck, end: int) -> None:
        """Write timercheck as of the synced end `end` of the log (1); not without timers."""
        self.check.log_position = end
        if end or check.queue_offset:
            self._check_file.save(replace(check, log_position=end))

    def _progress(self) -> tuple[int, int, int]:
        """Return what timercheck must record; not the passing of time, which is cheap to find out again."""
        return self.log.end, self.check.queue_offset, self.done

    def _sync_files(self) -> None:
        """Sync log and wheel (2)."""
        if self._sync_error is not None:
            raise self._sync_error
        try:
            self.log.sync()
            self.wheel.sync()
        except OSError as error:
            self._sync_error = error
            raise
