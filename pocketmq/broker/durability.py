"""Durability: when a stored message may be acknowledged. One place for every front and every act.

    flushDiskType   brokerRole                    on success the message is
    ASYNC_FLUSH     ASYNC_MASTER                  in this machine's memory: it survives the process
    SYNC_FLUSH      any                           on this machine's disk
    any             SYNC_MASTER                   with inSyncReplicas - 1 slaves, too

1. Both waits run concurrently. Of two failures the slaves' is reported, as RocketMQ sets the replica status
   last.
2. A message that fails here is stored and will be delivered: the code says what is not known of it.
"""

import asyncio
from collections.abc import Callable

from pocketmq.broker.ha.replicas import ReplicaWaits
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store import MessageStore, StoreClosed


class Durability:
    """See the head of the file."""

    def __init__(self, store: MessageStore, replicas: ReplicaWaits) -> None:
        self._store = store
        self.replicas = replicas
        self.is_sync_flush = store.config.flush_disk_type == "SYNC_FLUSH"

    @property
    def waits(self) -> bool:
        """Return True if a response has to wait for anything, else it may be sent at once."""
        return self.is_sync_flush or self.replicas.wanted

    def ask_slaves(self, end: int, done: Callable[[ResponseCode], object]) -> ResponseCode | None:
        """Wait for the slaves only, see ReplicaWaits.ask; SUCCESS if that is not required."""
        if self.is_sync_flush and self.replicas.wanted:
            # The disk works while the slaves do.
            self._store.flushed(end)
        return self.replicas.ask(end, done)

    async def kept(self, end: int) -> ResponseCode:
        """Wait until the log is safe up to `end`; return what `when_kept` does. Raises: StoreClosed."""
        answered: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def done(code: ResponseCode) -> None:
            if not answered.done():
                answered.set_result(code)

        code = self.when_kept(end, done)
        return await answered if code is None else code

    def when_kept(self, end: int, done: Callable[[ResponseCode], object]) -> ResponseCode | None:
        """Like `kept`, without a task; end: a record's position + size.

        Returns: SUCCESS, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT if that is known
        already; None: `done` is called with it, once. Raises: StoreClosed.
        """

        def replicated(code: ResponseCode) -> None:
            try:
                known = code if code is not ResponseCode.SUCCESS else self._when_flushed(end, done)
            except StoreClosed:
                known = ResponseCode.FLUSH_DISK_TIMEOUT
            if known is not None:
                done(known)

        code = self.ask_slaves(end, replicated)
        return self._when_flushed(end, done) if code is ResponseCode.SUCCESS else code

    def _when_flushed(
        self, end: int, done: Callable[[ResponseCode], object]
    ) -> ResponseCode | None:
        """Wait for the disk only."""
        flushed = self._store.flushed(end) if self.is_sync_flush else None
        if flushed is None:
            return ResponseCode.SUCCESS

        def late() -> None:
            flushed.remove_done_callback(ended)
            done(ResponseCode.FLUSH_DISK_TIMEOUT)

        def ended(flush: "asyncio.Future[None]") -> None:
            timer.cancel()
            failed = flush.cancelled() or flush.exception() is not None
            done(ResponseCode.FLUSH_DISK_TIMEOUT if failed else ResponseCode.SUCCESS)

        timeout_ms = self._store.config.sync_flush_timeout
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, late)
        flushed.add_done_callback(ended)
        return None
