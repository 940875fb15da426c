"""FlushAnswers: answers that wait until what they promise is on the disk (SYNC_FLUSH).

All that wait for one flush share one callback. A flush that fails or takes too long is answered with
FLUSH_DISK_TIMEOUT, never with SUCCESS.
"""

import asyncio
import logging

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand, decode, encode
from pocketmq.remoting.connection import Connection, Reply
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)


class FlushAnswers:
    """Owner of the answers that are parked."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._flush_waits: set[asyncio.Future[None]] = set()
        self._parked: list[tuple[Connection, bytes]] = []
        self._parked_at: asyncio.Future[None] | None = None

    def when_flushed(
        self, request: RemotingCommand, connection: Connection, end: int, reply: bytes
    ) -> Reply:
        """The answer now, or parked until the log is on the disk up to `end`."""
        future = self._store.flushed(end)
        if future is None:
            return reply
        if request.flag & 2:
            return None
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
            connection.send(_late(reply) if failed else reply)


def _late(reply: bytes) -> bytes:
    """FLUSH_DISK_TIMEOUT instead of SUCCESS, with the same header: it may well be stored."""
    answer = decode(reply[4:])
    answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
    return encode(answer)
