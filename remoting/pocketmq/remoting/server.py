"""RemotingServer: listens, owns the connections and the tasks of their slow answers.

`async with RemotingServer(handlers, clock) as server: await server.listen(host, port)`; leaving closes the
listeners first, then the connections, then waits for the tasks. Idle and half-sent connections are
closed by a scan (120 s, as RocketMQ does).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.frames import FRAME_SIZE_MAX
from pocketmq.remoting.tls import ServerTls

log = logging.getLogger(__name__)


class RemotingServer:
    """A server for one table of handlers, on any number of addresses.

    idle_ms: a connection without traffic either way, or with half a frame, for that long is closed.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        clock: Clock,
        *,
        default_handler: Handler | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        tls: ServerTls | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        idle_ms: int = 120_000,
        scan_interval_ms: int = 10_000,
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        self._default_handler = default_handler
        self._on_open = on_open
        self._on_close = on_close
        self._tls = tls
        self._frame_size_max = frame_size_max
        self._idle_ms = idle_ms
        self._scan_interval_ms = scan_interval_ms
        self._listeners: list[asyncio.Server] = []
        self.connections: set[Connection] = set()

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._scanner = self._tasks.create_task(self._scan(), name="remoting-scan")
        self._running: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.close()
        self._scanner.cancel()
        for task in list(self._running):
            task.cancel()
        # Not given the body's exception: it goes on as itself, not inside an ExceptionGroup.
        await self._tasks.__aexit__(None, None, None)
        for connection in list(self.connections):
            connection.abort()
        for listener in self._listeners:
            await listener.wait_closed()

    async def listen(
        self, host: str = "", port: int = 0, *, sock: socket.socket | None = None
    ) -> tuple[str, int]:
        """Listen there too; port 0 takes a free one. Returns the real address.

        sock: a bound socket instead of host and port, for who has to know the port before it serves.
        Raises: OSError when the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        if sock is not None:
            listener = await loop.create_server(self._make_connection, sock=sock, backlog=1024)
        else:
            listener = await loop.create_server(self._make_connection, host, port, backlog=1024)
        self._listeners.append(listener)
        name = listener.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def _make_connection(self) -> Connection:
        return Connection(
            self._handlers,
            spawn=self._spawn,
            monotonic_ms=self._clock.monotonic_ms,
            on_open=self._opened,
            on_close=self._closed,
            default_handler=self._default_handler,
            tls=self._tls,
            frame_size_max=self._frame_size_max,
        )

    def _opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._on_open is not None:
            self._on_open(connection)

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self._scan_interval_ms / 1000)
            self.close_idle()

    def close_idle(self) -> int:
        """Close connections that are idle or stuck within a frame; returns how many."""
        now = self._clock.monotonic_ms()
        closed = 0
        for connection in list(self.connections):
            last = max(connection.last_read_ms, connection.last_write_ms)
            partial = connection.partial_since_ms
            if now - last > self._idle_ms or (partial and now - partial > self._idle_ms):
                log.info("connection closed: idle peer=%s", connection.peer)
                connection.abort()
                closed += 1
        return closed
