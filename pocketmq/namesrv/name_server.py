"""NameServer: the tables, their handlers and the tasks, composed.

    async with NameServer(config, clock) as server:
        host, port = await server.listen()

Leaving closes the listeners and all connections. A broker in the same process registers by a call (`local`),
without a connection.
"""

import asyncio
import logging
from typing import Self

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import KVConfig, TableFile
from pocketmq.namesrv.local import LocalRegistrar
from pocketmq.namesrv.processors import NameServerProcessors
from pocketmq.namesrv.route_info import RouteInfo
from pocketmq.namesrv.waiting import WaitingClients
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.serving.log_levels import start_with_levels
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.remoting.transport.tls import ServerTls

log = logging.getLogger(__name__)


class NameServer:
    """One name server.

    Attributes: config, routes, waiting, kv_config, local (for brokers of this process), address (`ip:port`
    once it listens).
    """

    def __init__(
        self,
        config: NamesrvConfig,
        clock: Clock,
        *,
        kv_file: TableFile | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.config = config
        self.waiting = WaitingClients(clock)
        self.routes = RouteInfo(clock, self.waiting.tell)
        self.kv_config = KVConfig(kv_file)
        self.local = LocalRegistrar(self.routes, self.kv_config)
        self.address = ""
        self._server = RemotingServer(
            NameServerProcessors(self.routes, self.kv_config, config, self.waiting.add).handlers(),
            clock,
            on_close=self._closed,
            tls=tls,
            idle_ms=config.server_channel_max_idle_time_seconds * 1000,
        )

    async def __aenter__(self) -> Self:
        start_with_levels(self.config.log_levels)
        self.kv_config.load()
        await self._server.__aenter__()
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._scanner = self._tasks.create_task(self._scan(), name="namesrv-scan")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._scanner.cancel()
        # The body's exception is not passed in: it propagates as itself, not in an ExceptionGroup.
        await self._tasks.__aexit__(None, None, None)
        await self._server.__aexit__(None, None, None)

    async def listen(self) -> str:
        """Listen on the configured address; return `ip:port`. Raises: OSError."""
        host, port = await self._server.listen(self.config.bind_address, self.config.listen_port)
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self.address

    def _closed(self, connection: Connection) -> None:
        self.routes.connection_closed(connection)
        self.waiting.forget(connection)

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_not_active_broker_interval / 1000)
            self.scan()

    def scan(self) -> int:
        """Remove brokers without a sign of life and close their connections; return how many.

        Forget clients that have waited in vain, too.
        """
        self.waiting.expire()
        connections = self.routes.expire()
        for connection in connections:
            if isinstance(connection, Connection):
                connection.abort()
        return len(connections)
