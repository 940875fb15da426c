"""KeptAnswers: responses that wait until their messages are safe (durability.py): on disk, with slaves.

All responses that wait for one flush share one callback. A failure or time-out is answered with its code,
FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, never with SUCCESS. The latency is counted
when the response is sent; of the successes each sixteenth is measured (latencies.py).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import decode, encode
from pocketmq.remoting.transport.connection import Connection
from pocketmq.store import StoreClosed

log = logging.getLogger(__name__)

_new_tuple = tuple.__new__


class _Parked(NamedTuple):
    """A response that waits, or those to several `requests` of one read; began_ms: when these were read."""

    connection: Connection
    reply: bytes | Sequence[bytes]
    code: int
    began_ms: int
    requests: int


# What one measured send stands for.
_PLAIN = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2))


class KeptAnswers:
    """Owner of the responses parked for a flush; those that wait for slaves are parked in ReplicaWaits."""

    def __init__(self, node: Node, messages: Messages) -> None:
        self._store = messages.store
        self._durability = messages.durability
        self._latencies = messages.stats.latencies
        self._monotonic_ms = node.clock.monotonic_ms
        self._flush_waits: set[asyncio.Future[None]] = set()
        self._parked: list[_Parked] = []
        self._parked_at: asyncio.Future[None] | None = None

    def answer(self, code: int, connection: Connection, end: int | None, reply: bytes) -> bytes:
        """Return the response now, or b"": it is sent once the log is safe up to `end`, None: it is."""
        if end is not None:
            return self.park(code, connection, end, reply)
        took_ms = self._monotonic_ms() - connection.last_read_ms
        self._latencies.add(code, ResponseCode.SUCCESS, took_ms)
        return reply

    def park(
        self,
        code: int,
        connection: Connection,
        end: int,
        reply: bytes | Sequence[bytes],
        count: int = 1,
    ) -> bytes:
        """Like `answer`, for so many requests; code: theirs; reply: joined if they have one size.

        No sender waits for b"", a one-way request, but what it sent is flushed like anything else.
        """
        if not reply:
            if self._durability.is_sync_flush:
                self._store.flushed(end)
            return b""
        answer = _new_tuple(_Parked, (connection, reply, code, connection.last_read_ms, count))
        if self._durability.is_sync_flush:
            if not self._durability.replicas.wanted:
                # Slaves are not even asked.
                waits = self._waits_for_flush(answer, end)
                return b"" if waits else self._counted(answer, ResponseCode.SUCCESS)
            known = self._durability.ask_slaves(end, partial(self._replicated, answer, end))
            if known is ResponseCode.SUCCESS and self._waits_for_flush(answer, end):
                return b""
        else:
            known = self._durability.replicas.ask(end, partial(self._send, answer))
        return b"" if known is None else self._counted(answer, known)

    def _replicated(self, answer: _Parked, end: int, code: ResponseCode) -> None:
        """Continue when slaves have the message, or do not."""
        try:
            if code is ResponseCode.SUCCESS and self._waits_for_flush(answer, end):
                return
        except StoreClosed:
            return
        self._send(answer, code)

    def _send(self, answer: _Parked, code: ResponseCode) -> None:
        if code is ResponseCode.SUCCESS and answer[4] == 1 and answer[2] in _PLAIN:
            latencies = self._latencies
            latencies.left -= 1
            if not latencies.left:
                latencies.look(answer[2], self._monotonic_ms() - answer[3])
            answer[0].send(_joined(answer[1]))
        else:
            answer[0].send(self._counted(answer, code))

    def _counted(self, answer: _Parked, code: ResponseCode) -> bytes:
        """Return the response with that code, counting its latency."""
        _, reply, request_code, began_ms, count = answer
        self._latencies.add(request_code, code, self._monotonic_ms() - began_ms, count)
        if code is not ResponseCode.SUCCESS:
            if isinstance(reply, bytes):
                width = len(reply) // count
                reply = [reply[at : at + width] for at in range(0, len(reply), width)]
            reply = [_late(each, code) for each in reply]
        return _joined(reply)

    def _waits_for_flush(self, answer: _Parked, end: int) -> bool:
        """Return True if the response is parked until the flush. Raises: StoreClosed."""
        future = self._store.flushed(end)
        if future is None:
            return False
        if future is not self._parked_at:
            self._parked_at = future
            self._parked = []
            self._flush_waits.add(future)
            wait = _FlushWait(self._parked, self._send, self._store.config.sync_flush_timeout)
            future.add_done_callback(wait.done)
            future.add_done_callback(self._flush_waits.discard)
        self._parked.append(answer)
        return True

    async def drain(self) -> None:
        """Wait for the flushes that responses are parked for; used when the broker stops."""
        if self._flush_waits:
            timeout_ms = self._store.config.sync_flush_timeout
            await asyncio.wait(list(self._flush_waits), timeout=timeout_ms / 1000)


class _FlushWait:
    """The responses that wait for one flush, and their deadline."""

    __slots__ = ("_parked", "_send", "_timeout_ms", "_timer")

    def __init__(
        self,
        parked: list[_Parked],
        send: Callable[[_Parked, ResponseCode], None],
        timeout_ms: int,
    ) -> None:
        self._parked = parked
        self._send = send
        self._timeout_ms = timeout_ms
        self._start_timer()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_ms / 1000, self._expired)

    def done(self, future: "asyncio.Future[None]") -> None:
        """Handle the end of the flush, failed or not."""
        self._timer.cancel()
        self._answer(failed=future.cancelled() or future.exception() is not None)

    def _expired(self) -> None:
        log.error("a flush to disk takes too long, sends are answered with FLUSH_DISK_TIMEOUT")
        self._answer(failed=True)
        # More may be parked for the same flush before it ends.
        self._start_timer()

    def _answer(self, *, failed: bool) -> None:
        parked = self._parked.copy()
        self._parked.clear()
        code = ResponseCode.FLUSH_DISK_TIMEOUT if failed else ResponseCode.SUCCESS
        for answer in parked:
            self._send(answer, code)


def _joined(replies: bytes | Sequence[bytes]) -> bytes:
    return replies if isinstance(replies, bytes) else b"".join(replies)


def _late(reply: bytes, code: ResponseCode) -> bytes:
    """Replace SUCCESS by this code, keeping the header: the message is stored all the same."""
    answer = decode(reply[4:])
    answer.code = code
    return encode(answer)
