"""KeptAnswers: answers that wait until what they promise is so (promise.py): on the disk, with slaves.

All that wait for one flush share one callback. What fails or takes too long is answered with its code,
FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, never with SUCCESS.
"""

import asyncio
import logging
from functools import partial

from pocketmq.broker.promise import Promise
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.connection import Connection
from pocketmq.store import MessageStore, StoreClosed

log = logging.getLogger(__name__)


class KeptAnswers:
    """Owner of the answers that are parked for a flush; those for slaves are parked in Replicas."""

    def __init__(self, store: MessageStore, promise: Promise) -> None:
        self._store = store
        self._promise = promise
        self._flush_waits: set[asyncio.Future[None]] = set()
        self._parked: list[tuple[Connection, bytes]] = []
        self._parked_at: asyncio.Future[None] | None = None

    def when_kept(
        self, request: RemotingCommand, connection: Connection, end: int, reply: bytes
    ) -> bytes | None:
        """The answer now, or parked until the log is safe up to `end`."""
        if request.is_oneway:
            # Nobody waits for it; the disk is told of it as of any other.
            if self._promise.is_sync_flush:
                self._store.flushed(end)
            return None
        code = self._promise.ask_slaves(end, partial(self._replicated, connection, end, reply))
        if code is None:
            return None
        if code is not ResponseCode.SUCCESS:
            return _late(reply, code)
        return self._when_flushed(connection, end, reply)

    def _replicated(
        self, connection: Connection, end: int, reply: bytes, code: ResponseCode
    ) -> None:
        """The slaves have it, or have not."""
        if code is not ResponseCode.SUCCESS:
            connection.send(_late(reply, code))
            return
        try:
            now = self._when_flushed(connection, end, reply)
        except StoreClosed:
            return
        if now is not None:
            connection.send(now)

    def _when_flushed(self, connection: Connection, end: int, reply: bytes) -> bytes | None:
        if not self._promise.is_sync_flush:
            return reply
        future = self._store.flushed(end)
        if future is None:
            return reply
        if future is not self._parked_at:
            self._parked_at = future
            self._parked = []
            self._flush_waits.add(future)
            wait = _FlushWait(self._parked, self._store.config.sync_flush_timeout)
            future.add_done_callback(wait.done)
            future.add_done_callback(self._flush_waits.discard)
        self._parked.append((connection, reply))
        return None

    async def drain(self) -> None:
        """Wait for the flushes that answers are parked for; used when the broker stops."""
        if self._flush_waits:
            timeout_ms = self._store.config.sync_flush_timeout
            await asyncio.wait(list(self._flush_waits), timeout=timeout_ms / 1000)


class _FlushWait:
    """The answers that wait for one flush, and how long they may."""

    __slots__ = ("_parked", "_timeout_ms", "_timer")

    def __init__(self, parked: list[tuple[Connection, bytes]], timeout_ms: int) -> None:
        self._parked = parked
        self._timeout_ms = timeout_ms
        self._start_timer()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_ms / 1000, self._expired)

    def done(self, future: "asyncio.Future[None]") -> None:
        """The flush has ended, well or not."""
        self._timer.cancel()
        self._answer(failed=future.cancelled() or future.exception() is not None)

    def _expired(self) -> None:
        log.error("a flush to disk takes too long; sends are answered with FLUSH_DISK_TIMEOUT")
        self._answer(failed=True)
        # More may be parked for the same flush before it ends.
        self._start_timer()

    def _answer(self, *, failed: bool) -> None:
        parked = self._parked.copy()
        self._parked.clear()
        for connection, reply in parked:
            connection.send(_late(reply, ResponseCode.FLUSH_DISK_TIMEOUT) if failed else reply)


def _late(reply: bytes, code: ResponseCode) -> bytes:
    """This code instead of SUCCESS, with the same header: it is stored all the same."""
    answer = decode(reply[4:])
    answer.code = code
    return encode(answer)
