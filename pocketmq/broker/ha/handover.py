"""Handover: replace this master by a slave that must restart in order to lead, as Apache's must.

    begin     clients are routed through a proxy, which leads back to this server; the broker stops writing
              on its own (delays, timers, transaction checks), so that the slave's last copy of their state
              stays valid
    hold      clients wait, and the log does not change; repeated, it says that the program still runs
    hand_to   clients are routed to the other broker, and this one follows it
    end       the clients that still connect here are served by this broker, as a slave
    undo      instead of hand_to: this broker continues as the master

The handover is controlled over one direct connection to this server: that of the last `begin` or `hold`. If
it closes before the other broker leads, everything is undone: the program that would continue has
disconnected. A program that has lost its connection opens another one, which no proxy takes.
"""

import asyncio
import logging
from typing import Protocol

from pocketmq.broker.ha.outside import Outside
from pocketmq.broker.node import Node
from pocketmq.broker.refused import Refused
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.headers import GetConsumerListHeader
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.proxy import Proxy, members_of

log = logging.getLogger(__name__)

_QUIET_S = 3.0
_LOOK_S = 0.01
_TICK_S = 0.2
_OWN = (int(PocketRequestCode.CHANGE_ROLE),)


class Leading(Protocol):
    """The role of this broker in its set: replication.Replication."""

    @property
    def follows(self) -> bool: ...

    async def stand_still(self) -> None: ...

    async def follow_successor(self, number: int) -> None: ...

    async def go_on_leading(self) -> None: ...


class Handover:
    """Owner of the proxy."""

    def __init__(self, node: Node, replication: Leading, outside: Outside) -> None:
        self._node = node
        self._replication = replication
        self._server = outside.server
        self._client = outside.client
        self._tasks = outside.tasks
        self._changing = asyncio.Lock()
        self._by: Connection | None = None
        self._proxy: Proxy | None = None
        self._own: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._is_handed_over = False
        node.events.connection_closed.to(self._closed)

    async def begin(self, by: Connection) -> None:
        """Begin a handover. by: the connection that controls it. Raises: Refused."""
        async with self._changing:
            if self._replication.follows:
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask its master")
            if self._proxy is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is already being moved")
            server = self._server
            self._by = by
            loop = asyncio.get_running_loop()
            self._own = await loop.create_server(server.make_plain_connection, "127.0.0.1", 0)
            host, port = self._own.sockets[0].getsockname()[:2]
            clock = self._node.clock
            proxy = Proxy(server, f"{host}:{port}", clock.monotonic_ms, own=_OWN)
            self._proxy = proxy
            proxy.open()
            self._ticking = self._tasks.create_task(self._tick(proxy), name="proxy")
            for connection in list(server.connections):
                if connection is not by:
                    connection.close()
            await self._node.role.stop()
            log.warning("this broker is being moved; its clients are led through the other broker")

    async def hold(self, by: Connection) -> None:
        """Hold the clients. by: the connection that controls it now. Raises: Refused when a request does not
        end.
        """
        async with self._changing:
            proxy = self._begun()
            self._by = by
            if proxy.is_holding:
                return
            proxy.hold()
            try:
                async with asyncio.timeout(_QUIET_S):
                    while not proxy.is_quiet:
                        await asyncio.sleep(_LOOK_S)
            except TimeoutError:
                proxy.go_on()
                raise Refused(
                    ResponseCode.SYSTEM_BUSY, f"a request has had no answer for {_QUIET_S:g} s"
                ) from None
            await self._replication.stand_still()

    async def hand_to(self, address: str, number: int) -> None:
        """Route clients to the new master. address: of that broker; number: this broker's new id, as its
        slave. Raises: Refused.
        """
        async with self._changing:
            proxy = self._begun()
            self._is_handed_over = True
            proxy.move(address, self._is_known)
            await self._replication.follow_successor(number)
            log.warning("clients are led to the new master address=%s", address)

    async def end(self) -> None:
        """Finish the handover. Raises: Refused."""
        async with self._changing:
            self._begun().serve_here()
            self.close()

    async def undo(self) -> None:
        """Return to the state before the handover. Raises: Refused."""
        async with self._changing:
            proxy = self._begun()
            if self._is_handed_over:
                raise Refused(ResponseCode.SYSTEM_ERROR, "the other broker already leads")
            await self._replication.go_on_leading()
            proxy.serve_here()
            self.close()
            log.warning("this broker is not being moved; it still leads")

    def close(self) -> None:
        """Close the proxy and every connection through it."""
        proxy, self._proxy = self._proxy, None
        if proxy is None:
            return
        if self._ticking is not None:
            self._ticking.cancel()
        proxy.close()
        if self._own is not None:
            self._own.close()
        self._by = None
        self._is_handed_over = False

    def _begun(self) -> Proxy:
        if self._proxy is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "this broker is not being moved: begin the move first"
            )
        return self._proxy

    async def _tick(self, proxy: Proxy) -> None:
        while True:
            proxy.tick()
            if self._is_handed_over:
                proxy.close_left()
            await asyncio.sleep(_TICK_S)

    def _closed(self, connection: Peer) -> None:
        if connection is self._by and not self._is_handed_over:
            self._by = None
            log.warning("the program that moves this broker has disconnected")
            self._server.spawn(self._undone())

    async def _undone(self) -> None:
        try:
            await self.undo()
        except Refused as refused:
            log.info("nothing to undo reason=%s", refused.remark)

    async def _is_known(self, heartbeat: RemotingCommand) -> bool:
        """Return True if the client's consumers have reached the new master themselves. Raises nothing."""
        proxy = self._proxy
        if proxy is None:
            return False
        try:
            client, groups = members_of(heartbeat)
            for group in groups:
                asked = RemotingCommand(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListHeader(group).ext()
                )
                answer = await self._client.invoke(proxy.target, asked)
                if client not in (fastjson.loads(answer.body or b"{}").get("consumerIdList") or ()):
                    return False
        except (PocketMQError, OSError, LookupError, TypeError, ValueError):
            return False
        return bool(groups)
