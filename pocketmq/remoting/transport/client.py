"""RemotingClient: one connection per address, opened on demand and shared by all callers.

`async with RemotingClient(handlers, clock) as client: await client.invoke("127.0.0.1:9876", command, 3000)`.
Requests from the server side go to `handlers`, as in RemotingServer.

1. A connection over which nothing has come while a request waited for its whole time is *retired*: the next
   request opens another. Java closes it, and with it what other requests wait for; here these may have their
   answers, if the server was only slow, until another connection to that address proves to work.
2. One without traffic for IDLE_MS is closed: whatever is between the two ends may have forgotten it.
3. The kernel watches, too: it asks an idle peer for a sign of life, and gives up what is not acknowledged.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from typing import Any, Self

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.retired import Retired, watch_over
from pocketmq.remoting.transport.tls import not_connected

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 1.0
IDLE_MS = 120_000
"""Source: NettyClientConfig.clientChannelMaxIdleTimeSeconds, RocketMQ 4.9.7."""
_LOOK_S = 30
# Connecting takes of a request's time only if it takes longer.
_AT_ONCE_MS = 20


class RemotingClient:
    """Connections to any number of addresses (`ip:port` or `host:port`).

    before_send: called with each request before it is encoded, which is where ACL signs it. on_close: called
    with the address of a connection that is of no more use, and whether that is because it is silent (1).
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        clock: Clock,
        *,
        connect_timeout_ms: int = 3_000,
        tls: ssl.SSLContext | None = None,
        before_send: Callable[[RemotingCommand], None] | None = None,
        on_close: Callable[[str, bool], None] | None = None,
    ) -> None:
        self._handlers = handlers
        self._clock = clock
        self._connect_timeout_ms = connect_timeout_ms
        self._tls = tls
        self._before_send = before_send
        self._on_close = on_close
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection | Exception]] = {}
        self._open: set[Connection] = set()
        self._retired: list[Retired] = []
        self._is_closing = False
        self._none_open = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._running: set[asyncio.Task[Any]] = set()
        # A connection outlives the call that was first to need it, and has nothing of its variables.
        self._context = copy_context()
        self._spawn(self._close_idle())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        for task in list(self._running):
            task.cancel()
        for connection in list(self._open):
            connection.close()
        # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
        await self._tasks.__aexit__(None, None, None)
        await self._closed()

    async def _closed(self) -> None:
        """Wait until every connection is closed; what is left after CLOSE_WAIT_S is aborted.

        A plain connection closes in the loop's next turn; TLS says good-bye to the peer first.
        """
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                while self._open:
                    self._none_open.clear()
                    await self._none_open.wait()
        except TimeoutError:
            for connection in list(self._open):
                connection.abort()
            # abort() takes effect in the next turn.
            await asyncio.sleep(0)

    async def connection(self, address: str, within_ms: int | None = None) -> Connection:
        """Return the connection to `address`, connecting if necessary; concurrent callers share one attempt.

        within_ms: the caller's own time; the attempt continues for others. Raises: ConnectFailed.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.writable:
            return connection
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = self._tasks.create_task(
                self._connect(address), name=f"connect {address}", context=self._context.copy()
            )
            self._connecting[address] = attempt
            self._running.add(attempt)
            attempt.add_done_callback(lambda task: self._connected(address, task))
        # Not `shield`: it would cancel its callers with the attempt, when the client closes.
        await asyncio.wait((attempt,), timeout=None if within_ms is None else within_ms / 1000)
        if not attempt.done():
            raise ConnectFailed(address, f"no connection within {within_ms} ms")
        if attempt.cancelled():
            raise ConnectFailed(address, "this client is being closed")
        result = attempt.result()
        if isinstance(result, Connection):
            return result
        raise result

    def _connected(self, address: str, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        self._connecting.pop(address, None)

    async def _connect(self, address: str) -> Connection | Exception:
        # A failure is the task's value, not its exception: a TaskGroup would end all its children.
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                transport, connection = await loop.create_connection(
                    lambda: self._make_connection(address),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                    server_hostname=host.strip("[]") if self._tls else None,
                )
        except TimeoutError:
            return ConnectFailed(address, f"no connection within {self._connect_timeout_ms} ms")
        except (OSError, OverflowError, ValueError) as error:
            return not_connected(address, error, tls=self._tls is not None)
        watch_over(transport)
        self._connections[address] = connection
        return connection

    def _make_connection(self, address: str) -> Connection:
        return Connection(
            self._handlers,
            spawn=self._spawn,
            monotonic_ms=self._clock.monotonic_ms,
            on_open=self._open.add,
            on_close=lambda connection: self._lost(address, connection),
            on_silent=lambda connection: self._retire(address, connection),
        )

    def _lost(self, address: str, connection: Connection) -> None:
        connection.release()
        if self._connections.get(address) is connection:
            del self._connections[address]
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        if self._on_close is not None and not connection.is_silent:
            self._on_close(address, False)

    # ------------------------------------------------------------ connections that lead nowhere

    def _retire(self, address: str, connection: Connection) -> None:
        """Send no further request over a silent connection (1)."""
        if self._is_closing:
            return
        log.warning(
            "nothing came over a connection, the next request opens another address=%s", address
        )
        if self._connections.get(address) is connection:
            del self._connections[address]
        retired = Retired(address, connection)
        retired.make_room(self._retired)
        self._retired.append(retired)
        self._spawn(self._see_off(retired))
        if self._on_close is not None:
            self._on_close(address, True)

    async def _see_off(self, retired: Retired) -> None:
        try:
            await retired.over()
        finally:
            self._retired.remove(retired)
            retired.connection.abort()

    def _works(self, address: str, connection: Connection) -> None:
        """Note an answer from that address."""
        for retired in self._retired:
            if retired.address == address and retired.connection is not connection:
                retired.is_replaced = True

    async def _close_idle(self) -> None:
        """Apply invariant 2 until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            before_ms = self._clock.monotonic_ms() - IDLE_MS
            for address, connection in list(self._connections.items()):
                if connection.last_ms <= before_ms and not connection.is_asking:
                    self.close_address(address)

    # ------------------------------------------------------------ requests

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(coroutine, context=self._context.copy())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def invoke(
        self,
        address: str,
        command: RemotingCommand,
        timeout_ms: int = 3_000,
        *,
        signed: bool = True,
    ) -> RemotingCommand:
        """Send a request to `address`; return the answer whatever its code. signed: by `before_send`.

        Raises: ConnectFailed, ConnectionLost, RequestTimeout, TooManyRequests.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.writable:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            connection = await self.connection(address, timeout_ms)
            took_ms = round((loop.time() - began_s) * 1000)
            if took_ms > _AT_ONCE_MS:
                timeout_ms = max(1, timeout_ms - took_ms)
        if signed and self._before_send is not None:
            self._before_send(command)
        answer = await connection.invoke(command, timeout_ms)
        if self._retired:
            self._works(address, connection)
        return answer

    def open_connection(self, address: str) -> Connection | None:
        """Return the connection to `address` if it is already open."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.writable else None

    @property
    def signs(self) -> bool:
        """True if requests are changed before they are encoded."""
        return self._before_send is not None

    def encoded(self, command: RemotingCommand) -> bytes:
        """Return the frame of a request whose opaque is set, signed; for `Connection.post`."""
        if self._before_send is not None:
            self._before_send(command)
        return encode(command)

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises: ConnectFailed, ConnectionLost."""
        connection = await self.connection(address)
        if self._before_send is not None:
            self._before_send(command)
        connection.oneway(command)

    def close_address(self, address: str) -> None:
        """Close the connection to `address`, if there is one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of open connections."""
        return list(self._connections)
