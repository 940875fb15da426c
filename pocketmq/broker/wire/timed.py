"""TimedHandlers: measures requests from the read to the response, by wrapping their handlers.

Handlers are wrapped once, when the broker starts, so that the connection is not involved. A held request (a
pull that waits for messages) is not counted: its time only says how long no message arrived. Sends and pulls
count themselves (send.py, kept_answers.py, pull.py).
"""

import inspect
from collections.abc import Coroutine, Generator
from typing import Any, cast

from pocketmq.broker.figures.latencies import Latencies
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply

_COUNT_THEMSELVES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    )
)


class TimedHandlers:
    """Counts into `latencies`."""

    def __init__(self, latencies: Latencies, clock: Clock) -> None:
        self._latencies = latencies
        self._monotonic_ms = clock.monotonic_ms

    def wrap(self, handlers: dict[int, Handler]) -> None:
        """Wrap these handlers, except those that count themselves."""
        for code in handlers.keys() - _COUNT_THEMSELVES:
            handlers[code] = self._timed(handlers[code])

    def _timed(self, handler: Handler) -> Handler:
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
        self._latencies.add(request.code, int(answer), self._monotonic_ms() - began_ms)

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
