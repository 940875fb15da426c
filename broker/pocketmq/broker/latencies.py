"""Latencies: how long requests took, from the read that brought them to their answer.

Handlers are wrapped once, when the broker starts, so that the connection knows nothing of it. A request that
is held (a pull that waits for messages) is not counted: its time says how long nothing came. Nor are sends,
of which a look at the clock would cost more than a hundredth.
Bounds: RocketMQ 5.3.3's of rocketmq_rpc_latency.
"""

import inspect
from bisect import bisect_left
from collections.abc import Coroutine, Generator
from typing import Any, cast

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler, Reply

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
_SUM = len(BOUNDS_MS) + 1
UNTIMED = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class Latencies:
    """rows: by code of request and answer the counts of each bound, of what is beyond, and the sum in ms."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self.rows: dict[tuple[int, int], list[int]] = {}

    def add(self, code: int, answer: int, ms: int) -> None:
        """One request that took so long."""
        row = self.rows.get((code, answer))
        if row is None:
            row = self.rows[code, answer] = [0] * (_SUM + 1)
        row[bisect_left(BOUNDS_MS, ms)] += 1
        row[_SUM] += ms

    def timed(self, handler: Handler) -> Handler:
        """The handler, its requests counted."""

        def timed(request: RemotingCommand, connection: Connection) -> Reply:
            began_ms = connection.last_read_ms
            reply: Any = handler(request, connection)
            if reply is None:
                return None
            if inspect.iscoroutine(reply):
                return cast(Reply, self._when_awaited(request, began_ms, reply))
            if inspect.isgenerator(reply):
                return cast(Reply, self._when_through(request, began_ms, reply))
            self._answered(request, began_ms, reply)
            return cast(Reply, reply)

        return timed

    def _answered(self, request: RemotingCommand, began_ms: int, reply: Any) -> None:
        answer = reply.code if isinstance(reply, RemotingCommand) else ResponseCode.SUCCESS
        self.add(request.code, int(answer), self._monotonic_ms() - began_ms)

    async def _when_awaited(
        self, request: RemotingCommand, began_ms: int, waiting: Coroutine[Any, Any, Any]
    ) -> Any:
        reply = await waiting
        if reply is not None:
            self._answered(request, began_ms, reply)
        return reply

    def _when_through(
        self, request: RemotingCommand, began_ms: int, steps: Generator[Any, Any, Any]
    ) -> Generator[Any, Any, Any]:
        reply = yield from steps
        if inspect.iscoroutine(reply):
            return self._when_awaited(request, began_ms, reply)
        if reply is not None:
            self._answered(request, began_ms, reply)
        return reply
