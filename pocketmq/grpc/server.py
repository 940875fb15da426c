"""GrpcServer: the port of the 5.x SDKs, plain text and TLS on one.

    async with GrpcServer(broker, config, tls=tls) as grpc:      # while the broker serves
        grpc.address

It also serves clients that connect to the broker's own port without TLS: HTTP/2 begins as no frame does.

While the broker is a slave every connection is ended at once: an SDK with several endpoints then takes the
next one, and finds the master. Only a master announces its front.

The front is not imported before the first connection: a broker without such clients starts as fast and stays
as small as before. The import runs in a thread, and the first connections wait for it.
"""

import asyncio
import contextlib
import errno
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, cast

from pocketmq.broker.broker import Broker
from pocketmq.broker.nameservers.addresses import address_text
from pocketmq.grpc.config import ANNOUNCE_S, NAMESPACE, GrpcConfig
from pocketmq.remoting.transport.limits import SharedLimits
from pocketmq.remoting.transport.tls import ServerTls
from pocketmq.remoting.transport.turns import Turns

if TYPE_CHECKING:
    from pocketmq.grpc.http2.connection import GrpcConnection, Port
    from pocketmq.grpc.services.front import Front

log = logging.getLogger(__name__)

_SCAN_MS = 1_000
_IDLE_MS = 120_000
_STALLED_MS = 10_000
_BACKLOG = 1_024
"""Of name servers: under it, each broker's name has its front's address and the announcement's time."""


class GrpcServer:
    """Attributes: address (`ip:port` advertised to clients), port (where it listens), connections."""

    address: str
    port: int

    def __init__(
        self,
        broker: Broker,
        config: GrpcConfig,
        *,
        port_is_wish: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        """broker: one that serves already. port_is_wish: if the port is in use, any free one is taken."""
        self._port_is_wish = port_is_wish
        self._broker = broker
        self._config = config
        self._tls = tls
        self._clock = broker.parts.node.clock
        self._stack = AsyncExitStack()
        self._front: Front | None = None
        self._port: Port | None = None
        self._loading: asyncio.Future[Any] | None = None
        self._role_changed = asyncio.Event()
        self.connections: set[GrpcConnection] = set()

    async def __aenter__(self) -> Self:
        """Listen. Raises: OSError (address in use)."""
        settings = self._broker.config
        try:
            listener = await self._listen(self._config.port)
        except OSError as error:
            if not self._port_is_wish or error.errno != errno.EADDRINUSE:
                raise
            listener = await self._listen(0)
        self.port = int(listener.sockets[0].getsockname()[1])
        if self._config.port not in (0, self.port):
            log.info("port %d is in use: gRPC is on %d instead", self._config.port, self.port)
        self.address = address_text(settings.broker_ip1, self.port)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop, listener)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._spawn = tasks.create_task
            for coroutine, name in (
                (self._scan(), "grpc-scan"),
                (self._announce(), "grpc-announce"),
            ):
                stack.callback(tasks.create_task(coroutine, name=name).cancel)
            self._stack = stack.pop_all()
        self._broker.server.serve_http2(self)
        self._broker.parts.node.events.settings_changed.to(self._settings_changed)
        return self

    async def _listen(self, port: int) -> asyncio.Server:
        """Listen on a port. Raises: OSError."""
        host = self._broker.config.listen_address
        loop = asyncio.get_running_loop()
        return await loop.create_server(self.accept, host, port, backlog=_BACKLOG)

    async def __aexit__(self, *_: object) -> None:
        # The body's exception is not passed in: it propagates as itself.
        await self._stack.__aexit__(None, None, None)

    async def _stop(self, listener: asyncio.Server) -> None:
        self._broker.server.serve_http2(None)
        listener.close()
        self._close_connections()
        # A peer that does not read what is left for it is not waited for.
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()
        await listener.wait_closed()
        await asyncio.sleep(0)
        if self._port is not None:
            self._port.lost.finish()

    # ------------------------------------------------------------ connections

    def accept(self) -> asyncio.Protocol:
        """Return what serves the next connection."""
        if not self._leads:
            return _Refused()
        return _Opening(self) if self._port is None else self._connection(self._port)

    @property
    def _leads(self) -> bool:
        return self._broker.parts.node.role.leads

    def _settings_changed(self, names: set[str]) -> None:
        if "brokerRole" not in names:
            return
        self._role_changed.set()
        if not self._leads:
            self._close_connections()

    def _close_connections(self) -> None:
        for connection in list(self.connections):
            connection.leave()
            connection.close()

    def _connection(self, port: "Port") -> "GrpcConnection":
        from pocketmq.grpc.http2.connection import GrpcConnection

        connection = GrpcConnection(port)
        self.connections.add(connection)
        return connection

    def load(self) -> "asyncio.Future[Any]":
        """Import the front; the future is done once it is imported."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, _import)
        return self._loading

    def connection(self) -> "GrpcConnection":
        """Return a connection for a client that has waited for `load`."""
        if self._port is None:
            self._port = self._make()
        return self._connection(self._port)

    def _make(self) -> "Port":
        from pocketmq.grpc.http2.connection import Port
        from pocketmq.grpc.remote_routes import RemoteRoutes
        from pocketmq.grpc.services.context import FrontAddress
        from pocketmq.grpc.services.front import Front

        broker = self._broker
        remote_routes = RemoteRoutes(
            broker.config.broker_name,
            broker.outward.routes,
            broker.outward.announcements,
            self._clock.monotonic_ms,
        )
        host = broker.address.rpartition(":")[0].strip("[]")
        place = FrontAddress(host, self.port, remote_routes, self._spawn)
        self._front = front = Front(broker.parts, self._config, place)
        return Port(
            methods=front.methods,
            clock=self._clock,
            shared_limits=SharedLimits(broker.config.connection_limits),
            tls=self._tls,
            message_size_max=self._config.message_size_max,
            closed=self.connections.discard,
            lost=Turns(
                self._clock, broker.parts.node.call_soon, lambda call: call.went(call.unsent)
            ),
        )

    async def _announce(self) -> None:
        """Announce this front to those of other brokers, repeatedly: name servers forget."""
        tell = self._broker.outward.announcements.announce
        name = self._broker.config.broker_name
        try:
            while True:
                self._role_changed.clear()
                if self._leads:
                    await tell(NAMESPACE, name, f"{self.address} {self._clock.now_ms()}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ANNOUNCE_S):
                        await self._role_changed.wait()
        finally:
            if self._leads:
                await tell(NAMESPACE, name, None)

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(_SCAN_MS / 1000)
            self.scan()

    def scan(self) -> None:
        """Close connections and remove clients that are lost, idle, or stuck."""
        if self._front is None or self._port is None:
            return
        self._front.scan()
        now_ms = self._clock.monotonic_ms()
        for stalled in self._port.shared_limits.stalled(now_ms, _STALLED_MS):
            log.warning("connection closed: its unfinished message blocks others peer=%s", stalled)
            stalled.abort()
        for connection in list(self.connections):
            if not connection.calls and now_ms - connection.last_read_ms > _IDLE_MS:
                log.debug("connection closed: idle peer=%s", connection.peer)
                connection.leave()
                connection.close()


class _Refused(asyncio.Protocol):
    """A connection to a slave."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class _Opening(asyncio.Protocol):
    """A connection that was made before the front was imported."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.load().add_done_callback(self._loaded)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._early += data
        self._transport.pause_reading()

    def _loaded(self, loading: "asyncio.Future[Any]") -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        error = None if loading.cancelled() else loading.exception()
        if loading.cancelled() or error is not None:
            log.error(
                "cannot serve gRPC clients: %r; install PocketMQ with its extra: "
                'pip install "FOLDER_OR_WHEEL[broker]"',
                str(error),
            )
            transport.abort()
            return
        connection = self._server.connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._early and not transport.is_closing():
            transport.resume_reading()
            connection.data_received(self._early)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None


def _import() -> None:
    import pocketmq.grpc.services.front

    assert pocketmq.grpc.services.front
