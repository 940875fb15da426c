"""Preallocation: allocates blocks, pages and files ahead of the writer, from the pool.

The writer signals every STEP it has written. Then the pool allocates blocks if less than half a stretch is
left, faults in the next pages if the writer is fast (the first touch of a page costs the writer more than the
whole record), and creates the next file if this one is half full. The writer never waits: if the pool is late
it does the same itself (CommitLog.make_room). Errors here are ignored: the writer will meet them itself.
Owner: MessageStore.
"""

import asyncio
from concurrent.futures import Executor

from pocketmq.store.errors import StoreError, StoreUnreadable
from pocketmq.store.log.commit_log import STEP, STRETCH, CommitLog
from pocketmq.store.log.folder import sync_folder
from pocketmq.store.log.mapped_file import MappedFile
from pocketmq.store.side_tasks import SideTasks

# A writer that takes longer for a STEP does not gain by pages ahead.
_FAST_S = 1.0
_PAGES_AHEAD = 4 * STEP


class Preallocation:
    """Works when the log signals that it runs low."""

    def __init__(self, commit_log: CommitLog, pool: Executor) -> None:
        self._log = commit_log
        self._pool = pool
        self._signalled = 0.0
        # Position up to which pages were made present.
        self._populated = 0

    async def run(self, side_tasks: SideTasks) -> None:
        """Until cancelled."""
        await side_tasks.repeat("preallocation", self._round)

    async def _round(self) -> None:
        await self._log.low.wait()
        try:
            await self._prepare()
        except (OSError, StoreError):
            # Once more, whether the writer comes along or not.
            self._log.low.set()
            raise

    async def _prepare(self) -> None:
        self._log.low.clear()
        file = self._log.current
        if file is None:
            return
        loop = asyncio.get_running_loop()
        at = self._log.at
        if file.reserved < min(file.size, at + STRETCH // 2):
            await loop.run_in_executor(self._pool, file.reserve, at + STRETCH)
        now = loop.time()
        signalled, self._signalled = self._signalled, now
        if now - signalled < _FAST_S:
            populated = max(self._populated, file.start + at)
            end = min(file.start + at + _PAGES_AHEAD, file.end)
            if populated < end:
                start = file.start
                await loop.run_in_executor(
                    self._pool, file.populate, populated - start, end - start
                )
                self._populated = end
        ahead = self._log.ahead_wanted()
        if ahead is not None:
            made = await loop.run_in_executor(self._pool, self._make, ahead)
            if made is not None:
                self._log.take_ahead(made)

    def _make(self, start: int) -> MappedFile | None:
        queue = self._log.files
        # Exclusive: a late pool must not empty the file that the writer has made itself meanwhile.
        try:
            made = MappedFile.create(
                queue.folder, start, queue.file_size, keep_open=True, exclusive=True
            )
        except StoreUnreadable as error:
            if isinstance(error.__cause__, FileExistsError):
                return None
            raise
        made.reserve(min(STRETCH, made.size))
        sync_folder(queue.folder)
        return made
