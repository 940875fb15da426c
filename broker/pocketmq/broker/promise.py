"""Promise: when what was stored may be answered with success. One place for every front and every act.

    flushDiskType   brokerRole                    a success says that it is
    ASYNC_FLUSH     ASYNC_MASTER                  in this machine's memory: it survives the process
    SYNC_FLUSH      any                           on this machine's disk
    any             SYNC_MASTER                   with inSyncReplicas - 1 slaves, too

1. Both waits run side by side. Of two failures the slaves' is answered, as RocketMQ's replica status is set
   last.
2. A message that fails here is stored and will be delivered: the codes say what is not known of it.
"""

import asyncio
from collections.abc import Callable

from pocketmq.broker.ha.replicas import Replicas
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store import MessageStore


class Promise:
    """See the head of the file."""

    def __init__(self, store: MessageStore, replicas: Replicas) -> None:
        self._store = store
        self.replicas = replicas
        self.is_sync_flush = store.config.flush_disk_type == "SYNC_FLUSH"

    @property
    def waits(self) -> bool:
        """Whether an answer has to wait for anything: else it may be given at once."""
        return self.is_sync_flush or self.replicas.wanted

    def ask_slaves(self, end: int, done: Callable[[ResponseCode], object]) -> ResponseCode | None:
        """The slaves' half, see Replicas.ask; SUCCESS where nobody waits for them."""
        if not self.replicas.wanted:
            return ResponseCode.SUCCESS
        if self.is_sync_flush:
            # The disk works while the slaves do.
            self._store.flushed(end)
        return self.replicas.ask(end, done)

    async def kept(self, end: int) -> ResponseCode:
        """Wait until the log is safe up to `end`, a record's position + size.

        Returns: SUCCESS, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT.
        Raises: StoreClosed.
        """
        answered: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def done(code: ResponseCode) -> None:
            if not answered.done():
                answered.set_result(code)

        code = self.ask_slaves(end, done)
        disk = await self._flushed(end)
        if code is None:
            code = await answered
        return disk if code is ResponseCode.SUCCESS else code

    async def _flushed(self, end: int) -> ResponseCode:
        flushed = self._store.flushed(end) if self.is_sync_flush else None
        if flushed is None:
            return ResponseCode.SUCCESS
        timeout_ms = self._store.config.sync_flush_timeout
        finished, _ = await asyncio.wait([flushed], timeout=timeout_ms / 1000)
        if not finished or flushed.cancelled() or flushed.exception() is not None:
            return ResponseCode.FLUSH_DISK_TIMEOUT
        return ResponseCode.SUCCESS
