"""RemotingServer: listens, owns the connections and the tasks of their slow answers.

`async with RemotingServer(handlers, clock) as server: await server.listen(host, port)`; leaving closes the
listeners first, then the connections, then waits for the tasks. Idle and half-sent connections are
closed by a scan (120 s, as RocketMQ does).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Self

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.frames import FRAME_SIZE_MAX
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.detect import ConnectionTaker, ProtocolDetector
from pocketmq.remoting.transport.limits import ConnectionLimits, SharedLimits
from pocketmq.remoting.transport.tls import ServerTls
from pocketmq.remoting.transport.turns import Turns

log = logging.getLogger(__name__)

# A peer that sends nothing for so long within a frame is closed, when others wait for room for theirs.
_STALLED_MS = 3_000
_STALLED_SCAN_MS = 1_000
_IDLE_SCAN_MS = 10_000


class RemotingServer:
    """A server for one table of handlers, on any number of addresses.

    limits: what all connections may use together (limits.py); by default as many of them as the process has
    descriptors for, less some for files. idle_ms: a connection without traffic either way, or with half a
    frame, for that long is closed.
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
        limits: ConnectionLimits | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        idle_ms: int = 120_000,
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        self._default_handler = default_handler
        self._on_open = on_open
        self._on_close = on_close
        self.tls = tls
        self._frame_size_max = frame_size_max
        self.idle_ms = idle_ms
        self._listeners: list[asyncio.Server] = []
        # Takes new connections in this server's place, for a while (proxy.py).
        self._instead: ConnectionTaker | None = None
        # Takes those that begin with HTTP/2; None: no gRPC front.
        self._http2: ConnectionTaker | None = None
        self.connections: set[Connection] = set()
        self.shared_limits = SharedLimits(limits or ConnectionLimits())

    async def __aenter__(self) -> Self:
        if not self.shared_limits.limits.count_max:
            self.shared_limits.limits = replace(
                self.shared_limits.limits, count_max=_descriptors_for_connections()
            )
        # Many connections may end at once.
        call_soon = asyncio.get_running_loop().call_soon
        self._gone = Turns[Connection](self._clock, call_soon, self._forget)
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._scanner = self._tasks.create_task(self._scan(), name="remoting-scan")
        self._running: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.close()
        self._scanner.cancel()
        for task in list(self._running):
            task.cancel()
        # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
        await self._tasks.__aexit__(None, None, None)
        for connection in list(self.connections):
            connection.abort()
        for listener in self._listeners:
            await listener.wait_closed()

    async def listen(
        self, host: str = "", port: int = 0, *, sock: socket.socket | None = None
    ) -> tuple[str, int]:
        """Listen on an address; port 0 takes a free one. Returns the real address.

        sock: a bound socket instead of host and port, for callers that need the port before it serves.
        Raises: OSError if the address is not available.
        """
        loop = asyncio.get_running_loop()
        if sock is not None:
            listener = await loop.create_server(self._accept, sock=sock, backlog=1024)
        else:
            listener = await loop.create_server(self._accept, host, port, backlog=1024)
        self._listeners.append(listener)
        name = listener.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    def lead_to(self, other: ConnectionTaker | None) -> None:
        """Have `other` take every new connection from now on; None: this server again."""
        self._instead = other

    def serve_http2(self, front: ConnectionTaker | None) -> None:
        """Have `front` take new connections that begin with HTTP/2; None: refuse them."""
        self._http2 = front

    def _accept(self) -> asyncio.Protocol:
        return self.make_connection() if self._instead is None else self._instead.accept()

    def make_plain_connection(self) -> Connection:
        """Return a connection for a client that comes through a proxy, where its TLS, if any, ended."""
        return self.make_connection(tls=False)

    def make_connection(self, *, tls: bool = True) -> Connection:
        """Return a connection that serves one client."""
        return Connection(
            self._handlers,
            spawn=self.spawn,
            monotonic_ms=self._clock.monotonic_ms,
            on_open=self._opened,
            on_close=self._closed,
            default_handler=self._default_handler,
            detector=ProtocolDetector(self.tls if tls else None, self._http2),
            shared_limits=self.shared_limits,
            frame_size_max=self._frame_size_max,
        )

    def _opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        refusal = self.shared_limits.enter(_ip(connection))
        if refusal is not None:
            log.warning("connection refused peer=%s reason=%r", connection.peer, refusal)
            connection.abort()
        elif self._on_open is not None:
            self._on_open(connection)

    def _closed(self, connection: Connection) -> None:
        self._gone.add([connection])

    def _forget(self, connection: Connection) -> None:
        if not connection.closed:
            # Only its peer has ended so far: it comes here again.
            connection.end()
            return
        connection.release()
        self.connections.discard(connection)
        self.shared_limits.leave(connection, _ip(connection))
        if self._on_close is not None:
            self._on_close(connection)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until the server ends, at the latest; it must not raise."""
        task = self._tasks.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _scan(self) -> None:
        next_idle_ms = self._clock.monotonic_ms() + _IDLE_SCAN_MS
        while True:
            await asyncio.sleep(_STALLED_SCAN_MS / 1000)
            self.close_stalled()
            if self._clock.monotonic_ms() >= next_idle_ms:
                next_idle_ms += _IDLE_SCAN_MS
                self.close_idle()

    def close_stalled(self) -> int:
        """Close connections that are silent within a frame while others wait for room; return how many."""
        stalled = self.shared_limits.stalled(self._clock.monotonic_ms(), _STALLED_MS)
        for connection in stalled:
            log.warning(
                "connection closed: its incomplete frame holds up others peer=%s", connection
            )
            connection.abort()
        return len(stalled)

    def close_idle(self) -> int:
        """Close connections that are idle or stuck within a frame; return how many."""
        now = self._clock.monotonic_ms()
        closed = 0
        for connection in list(self.connections):
            partial = connection.partial_since_ms
            if now - connection.last_ms > self.idle_ms or (
                partial and now - partial > self.idle_ms
            ):
                log.info("connection closed: idle peer=%s", connection.peer)
                connection.abort()
                closed += 1
        return closed


def _descriptors_for_connections() -> int:
    """Return this process' descriptors, less an eighth, at least 64, for files; 0 if unlimited."""
    try:
        import resource
    except ImportError:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if limit == resource.RLIM_INFINITY else max(limit - max(limit // 8, 64), 16)


def _ip(connection: Connection) -> str:
    return connection.peer.rpartition(":")[0]
