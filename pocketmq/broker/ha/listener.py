"""HaListener: a master's HA port, where slaves connect; sockets around slaves.py and replicas.py.

1. Slices are taken from the mapped log, up to a bound per slave and turn of the event loop; a slave that
   does not read delays no other slave, and costs 512 KiB.
2. Messages that this process found in its log when it started are flushed before any is sent: a power cut
   must not take from the master messages that a slave has.
3. Messages for which a producer waits are sent in the next turn of the loop, with all others of the same
   turn (the event slaves_awaited); the rest is sent within LOOK_MS, after an idle period within
   PAUSE_LOOK_MS, as RocketMQ does. Without slaves nothing runs.
4. With accounts, a slave needs a ticket (proof.py) as its first 8 bytes, or an address of the global list:
   the log holds every topic. RocketMQ accepts every connection.
5. Bytes are handed to the kernel at once: uvloop would first read what other clients have sent, and the
   slave would wait for it.
Source: DefaultHAService, DefaultHAConnection, RocketMQ 4.9.7.
"""

import asyncio
import logging
import socket
from typing import cast

from pocketmq.broker.access.fronts import BearerAccess
from pocketmq.broker.ha.comparison import Comparison
from pocketmq.broker.ha.config import HaConfig
from pocketmq.broker.ha.introduction import Introductions
from pocketmq.broker.ha.replicas import ReplicaWaits
from pocketmq.broker.ha.slaves import Slave
from pocketmq.broker.ha.wire import REPORT_SIZE, head, position_of
from pocketmq.broker.nameservers.addresses import address_text
from pocketmq.remoting.clock import Clock
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)

LOOK_MS, PAUSE_LOOK_MS = 20, 100
CONNECTIONS_MAX = 64
# Connections that have yet to show a ticket: a slave of ours sends it at once.
_STRANGERS_MAX = 64
_TICKET_S = 10.0
_ROUND_SIZE = 1 << 20


class Admission:
    """Says which connections may follow (invariant 4)."""

    def __init__(self, accounts: BearerAccess | None, introductions: Introductions) -> None:
        self._accounts = accounts
        self._introductions = introductions

    def needs_ticket(self, address: str) -> bool:
        """Return True if a connection from `ip:port` has to show a ticket."""
        return self._accounts is not None and not self._accounts.lists(address.rpartition(":")[0])

    def take(self, ticket: int) -> tuple[str, bytes] | None:
        """Use a ticket up. Returns: what `may_stay` wants; None if it is not valid."""
        return self._introductions.tickets.take(ticket)

    def may_stay(self, address: str, admitted: tuple[str, bytes] | None) -> bool:
        """Return True if a connection may still follow; admitted: by which ticket, None without one."""
        if not self.needs_ticket(address):
            return True
        return admitted is not None and self._introductions.still_follows(*admitted)


class HaListener:
    """Owner of the port and of its connections."""

    def __init__(
        self,
        config: HaConfig,
        clock: Clock,
        store: MessageStore,
        replicas: ReplicaWaits,
        admission: Admission,
    ) -> None:
        self.config = config
        self.admission = admission
        # In the order in which they connected.
        self.strangers: dict[SlaveConnection, None] = {}
        self._told = ""
        self.monotonic_ms = clock.monotonic_ms
        self.store = store
        self.replicas = replicas
        self.connections: set[SlaveConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        # Set when a slave connects; awaited while there is neither a connection nor a waiting send.
        self._there = asyncio.Event()
        # Compares the log of a slave with this one; None before the broker serves.
        self._comparison: Comparison | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._comparing: set[asyncio.Task[None]] = set()
        self._ends = False
        self._is_due = False
        self.is_closed = False
        # Where the log ended at the last look.
        self._seen = -1

    async def listen(
        self,
        sock: socket.socket,
        comparison: Comparison | None = None,
        tasks: asyncio.TaskGroup | None = None,
    ) -> None:
        """Accept slaves; `sock` is bound. comparison: without it no slave's log is looked at."""
        self._comparison, self._tasks = comparison, tasks
        # Invariant 2.
        await self.store.on_disk()
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(self._make_connection, sock=sock)

    def _make_connection(self) -> "SlaveConnection":
        return SlaveConnection(self)

    async def finish(self, within_ms: int) -> None:
        """Send until the slaves in sync have everything, or the time is over."""
        until = self.monotonic_ms() + within_ms
        slaves, end = self.replicas.slaves, self.store.commit_log_max_position
        self.wake()
        while self.monotonic_ms() < until and any(
            slaves.is_in_sync(slave) and slave.acked < end for slave in slaves.connected
        ):
            await self.round()

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        self.is_closed = True
        self.drop_all()
        self.replicas.release()

    def drop_all(self) -> None:
        """Close all connections after a change of role; slaves reconnect."""
        for connection in [*self.connections, *self.strangers]:
            connection.abort()

    def drop_strangers(self) -> None:
        """Close the connections of slaves that may not follow any more (invariant 4)."""
        for connection in list(self.connections):
            if not self.admission.may_stay(connection.address, connection.admitted):
                connection.abort()

    def wake(self) -> None:
        """Send what is pending in the next turn of the loop."""
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        self.replicas.sent()
        now_ms = self.monotonic_ms()
        more = [connection.step(now_ms) for connection in list(self.connections)]
        if any(more):
            self.wake()

    async def round(self) -> None:
        """Pause, send the log's new end even if no producer waits for it, and expire overdue waits."""
        if self.connections or self.replicas.waiting:
            seen, self._seen = self._seen, self.store.commit_log_max_position
            await asyncio.sleep((PAUSE_LOOK_MS if seen == self._seen else LOOK_MS) / 1000)
        else:
            self._there.clear()
            await self._there.wait()
        self.replicas.expire()
        self.replicas.slaves.passed(self.monotonic_ms())
        self.wake()

    def compare(self, connection: "SlaveConnection", slave: Slave) -> None:
        """Have the log of a slave compared, and serve or refuse it then."""
        if self._ends:
            return
        if self._comparison is None or self._tasks is None:
            self.replicas.slaves.compared(slave, "")
            return
        comparison = self._comparison

        async def compared() -> None:
            difference = await comparison.difference(slave.address, slave.first)
            if connection.slave is slave:
                self.replicas.slaves.compared(slave, difference)
                self.replicas.acked()
                self.wake()

        comparing = self._tasks.create_task(compared(), name=f"compare {slave.address}")
        self._comparing.add(comparing)
        comparing.add_done_callback(self._comparing.discard)

    def end_comparisons(self) -> None:
        """Cancel what is being compared, and begin no more: the broker stops."""
        self._ends = True
        for task in self._comparing:
            task.cancel()

    def refused(self, address: str) -> None:
        """Log that a connection from `ip:port` is refused for want of a ticket."""
        host = address.rpartition(":")[0]
        # A refused slave reconnects: one line in the log whenever the host differs from the last.
        if host != self._told:
            self._told = host
            log.warning(
                "access denied at the port for slaves peer=%s: it shows no ticket. Give the slave, a "
                "PocketMQ of this version or newer, an administrator's account "
                "(innerClientAuthenticationCredentials), or add its address to globalWhiteRemoteAddresses",
                address,
            )

    def entered(self, connection: "SlaveConnection") -> None:
        """Add the connection of a slave."""
        self.connections.add(connection)
        self._there.set()


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, listener: HaListener) -> None:
        self._listener = listener
        self._slaves = listener.replicas.slaves
        self._transport: asyncio.Transport | None = None
        self._paused = False
        # The first bytes of a connection that has yet to show a ticket.
        self._first = b""
        self._deadline: asyncio.TimerHandle | None = None
        self.address = ""
        # The account, and its key, whose ticket was shown.
        self.admitted: tuple[str, bytes] | None = None
        self.slave: Slave | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it under uvloop.
        transport = cast("asyncio.Transport", transport)
        listener = self._listener
        if listener.is_closed:
            # It was on its way in when the port was closed.
            transport.abort()
            return
        if len(listener.connections) >= CONNECTIONS_MAX:
            log.error("too many slaves, refused one count=%d", CONNECTIONS_MAX)
            transport.abort()
            return
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address = address_text(*peer[:2])
        self._transport = transport
        # Invariant 5.
        transport.set_write_buffer_limits(high=0)
        if not listener.admission.needs_ticket(self.address):
            self._enter()
            return
        if len(listener.strangers) >= _STRANGERS_MAX:
            next(iter(listener.strangers)).abort()
        listener.strangers[self] = None
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_TICKET_S, self.abort)

    def _enter(self) -> None:
        listener = self._listener
        self.slave = self._slaves.connect(self.address, listener.monotonic_ms())
        listener.entered(self)

    def _show_ticket(self, data: bytes) -> bytes:
        """Read the ticket of a connection (invariant 4). Returns: what follows it."""
        self._first += data
        if len(self._first) < REPORT_SIZE:
            return b""
        listener = self._listener
        self.admitted = listener.admission.take(position_of(self._first[:REPORT_SIZE]))
        if self.admitted is None:
            listener.refused(self.address)
            self.abort()
            return b""
        self._let_in()
        self._enter()
        rest, self._first = self._first[REPORT_SIZE:], b""
        return rest

    def _let_in(self) -> None:
        """No longer count as a stranger."""
        self._listener.strangers.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self.slave is None and self._transport is not None:
            data = self._show_ticket(data)
        if self.slave is not None and data:
            began = self.slave.next >= 0
            waits = self.slave.first >= 0
            self._slaves.heard(self.slave, data, self._listener.monotonic_ms())
            self._listener.replicas.acked()
            if self.slave.first >= 0 and not waits:
                self._listener.compare(self, self.slave)
            if not began:
                self._listener.wake()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._listener.wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._let_in()
        if self.slave is not None:
            log.info("a slave has left address=%s acked=%d", self.slave.address, self.slave.acked)
            self._slaves.disconnect(self.slave)
            self._listener.connections.discard(self)
            self.slave = None

    def abort(self) -> None:
        self._let_in()
        if self._transport is not None:
            self._transport.abort()

    def step(self, now_ms: int) -> bool:
        """Send what is pending. Returns: whether there is more."""
        slave = self.slave
        if slave is None:
            return False
        if self._slaves.is_silent(slave, now_ms):
            log.error(
                "a slave no longer answers, its connection is closed address=%s", slave.address
            )
            self.abort()
            return False
        more = self._send(slave, now_ms) if slave.served else False
        if not self._paused and self._slaves.due_for_life(slave, now_ms):
            self._write([self._head(slave, 0)], slave, now_ms)
        return more

    def _head(self, slave: Slave, size: int) -> bytes:
        """Return the header of the next slice of that size."""
        return head(slave.next, size)

    def _slice_size_max(self, slave: Slave) -> int:
        return self._listener.config.ha_transfer_batch_size

    def _send(self, slave: Slave, now_ms: int) -> bool:
        """Send up to _ROUND_SIZE bytes of the log (invariant 1). Returns: whether there is more."""
        store = self._listener.store
        until = slave.next + _ROUND_SIZE
        while slave.next < until and not self._paused:
            parts: list[bytes | memoryview] = []
            while len(parts) < 16:
                piece = store.raw(slave.next, self._slice_size_max(slave))
                if piece is None:
                    self._slaves.gone(slave)
                    break
                if not piece:
                    break
                parts += (self._head(slave, len(piece)), piece)
                slave.next += len(piece)
            if not parts:
                return False
            self._write(parts, slave, now_ms)
        return not self._paused

    def _write(self, parts: list[bytes | memoryview], slave: Slave, now_ms: int) -> None:
        assert self._transport is not None
        slave.told_ms = now_ms
        slave.sent.add(sum(map(len, parts)), now_ms)
        self._transport.writelines(parts)
