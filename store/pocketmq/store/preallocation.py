"""Preallocation: blocks and files ahead of the writer, from the pool.

The writer never waits for the disk to find room: half a stretch before its blocks run out the pool asks
for the next, and when a file is half full the pool makes the next file. When the pool is late the writer
asks itself (CommitLog.make_room). An error here is no error yet: the writer meets it when it gets there.
Owner: MessageStore.
"""

import asyncio
import logging
from concurrent.futures import Executor

from pocketmq.store.commit_log import STRETCH, CommitLog
from pocketmq.store.errors import StoreError
from pocketmq.store.folder import sync_folder
from pocketmq.store.mapped_file import MappedFile

log = logging.getLogger(__name__)


class Preallocation:
    """Works when the log says that it runs low."""

    def __init__(self, commit_log: CommitLog, pool: Executor) -> None:
        self._log = commit_log
        self._pool = pool
        self._low = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        self._log.on_low = self._low.set
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._low.wait()
                self._low.clear()
                file = self._log.current
                if file is None:
                    continue
                try:
                    end = max(file.reserved, self._log.at) + STRETCH
                    if file.reserved < file.size:
                        await loop.run_in_executor(self._pool, file.reserve, end)
                        self._log.reserved_more()
                    start = self._log.ahead_wanted()
                    if start is not None:
                        made = await loop.run_in_executor(self._pool, self._make, start)
                        self._log.take_ahead(made)
                except StoreError as error:
                    log.warning("cannot prepare room ahead of the writer error=%s", error)
        finally:
            self._log.on_low = None

    def _make(self, start: int) -> MappedFile:
        queue = self._log.files
        # Exclusive: a late pool must not empty the file that the writer has made itself meanwhile.
        made = MappedFile.create(
            queue.folder, start, queue.file_size, keep_open=True, exclusive=True
        )
        made.reserve(min(STRETCH, made.size))
        sync_folder(queue.folder)
        return made
