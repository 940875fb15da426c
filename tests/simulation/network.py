"""Network: TCP between the hosts of a run, with its own time, and its faults.

1. A connection keeps the order of its bytes and loses none of them while it lives; each connection has
   its own delay, so what goes by different ones is reordered. Writes may arrive in pieces,
   and several in one read.
2. While two hosts are cut off from each other what is under way waits, as TCP's retransmission has it, and
   new connections get no answer. An end that gives up waiting is not told to the other.
3. A process that is killed ends its connections at once (the peers see a reset). A machine that vanishes
   says nothing: its peers are half open until they speak to it and it is back, or give up. A connection that
   something between two hosts has forgotten, as a firewall does, stays open and carries nothing any more.
4. A host is known by its address; code runs on the host of the context it was started in (`HOST`).
"""

import asyncio
import contextvars
import errno
import itertools
import os
import random
import socket
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import SimulatedLoop

HOST: contextvars.ContextVar["Host"] = contextvars.ContextVar("HOST")
_BUSY_S = (0.0, 0.0005, 0.002)
# As much as a read of asyncio takes.
_READ_SIZE = 256 << 10
_RETRANSMIT_S = (0.2, 1.0)
_SYN_RETRY_S = 1.0
_PIECE_EVERY = 12
_CLOSE_S = 0.00002


class Host:
    """An address, its ports and its ends of connections. up: False from its death to its next start.
    is_frozen: its process does nothing for a while (freezing.py).
    """

    def __init__(self, network: "Network", ip: str) -> None:
        self.network = network
        self.ip = ip
        self.up = True
        self.is_frozen = False
        self.bound: set[int] = set()
        self.listeners: dict[int, Listener] = {}
        self.ends: dict[int, End] = {}
        self.ports = itertools.count(40_000)

    def die(self, *, silently: bool) -> None:
        """The process has died. silently: with its machine, so that no peer is told."""
        self.up = False
        self.listeners.clear()
        ends, self.ends = list(self.ends.values()), {}
        for end in ends:
            end.cut_off(silently=silently)


class Listener:
    """A port that is listened on."""

    def __init__(self, host: Host, sock: "SimulatedSocket", factory: Callable[[], Any]) -> None:
        self.host = host
        self.sockets = (sock,)
        self.factory = factory
        self.context = contextvars.copy_context()

    def close(self) -> None:
        port = self.sockets[0].getsockname()[1]
        if self.host.listeners.get(port) is self:
            del self.host.listeners[port]
        self.sockets[0].close()

    async def wait_closed(self) -> None:
        pass

    def is_serving(self) -> bool:
        return self in self.host.listeners.values()


class SimulatedSocket:
    """What the product does with a socket before the loop gets it: bind it, or ask for its own address."""

    def __init__(self, family: int = socket.AF_INET, *_: Any, **__: Any) -> None:
        self.family = family
        self._host = HOST.get()
        self._port = 0

    def bind(self, address: tuple[Any, ...]) -> None:
        port = int(address[1])
        if port in self._host.bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), str(address))
        self._port = port or next(self._host.ports)
        self._host.bound.add(self._port)

    def getsockname(self) -> tuple[str, int]:
        return self._host.ip, self._port

    def close(self) -> None:
        self._host.bound.discard(self._port)

    def setsockopt(self, *_: Any) -> None: ...

    def setblocking(self, *_: Any) -> None: ...

    def listen(self, *_: Any) -> None: ...

    def connect(self, *_: Any) -> None: ...

    def __enter__(self) -> "SimulatedSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class End(asyncio.Transport):
    """One end of a connection, and the way of its bytes to the other."""

    _numbers = itertools.count()

    def __init__(
        self, host: Host, local: tuple[str, int], remote: tuple[str, int], chance: random.Random
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.number = next(self._numbers)
        self.host = host
        self.loop = host.network.loop
        self.peer: End
        self.protocol: Any = None
        self.context = contextvars.copy_context()
        self._chance = chance
        self._delay_s = chance.uniform(0.0001, 0.002)
        self._arrives_s = 0.0
        self._held: list[tuple[str, bytes]] = []
        self._unread: list[bytes] = []
        self._reading = True
        # How long the process is busy before it reads: what came meanwhile is one read.
        self._busy_s = chance.choice(_BUSY_S)
        self._reads_soon = False
        self.is_close = self.is_forgotten = False
        self._under_way = 0
        self._high = 65_536
        self._writer_paused = False
        self._closing = False
        # The protocol was told that it is over, or its process has died.
        self.over = False
        self.told_end = False
        host.ends[self.number] = self

    def begin(self, factory: Callable[[], Any]) -> None:
        """Give the process that listens its end."""
        self.protocol = factory()
        self.protocol.connection_made(self)

    # ------------------------------------------------------------ what the protocol may call

    def is_closing(self) -> bool:
        return self._closing or self.over

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 65_536 if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def write(self, data: Any) -> None:
        if self._closing or self.over or not data:
            return
        # What the product hands over may be a slice of a mapped file: the kernel copies it, too.
        data = bytes(data)
        self._under_way += len(data)
        if len(data) > 1 and self._chance.randrange(_PIECE_EVERY) == 0:
            at = self._chance.randrange(1, len(data))
            self._send("data", data[:at])
            self._send("data", data[at:])
        else:
            self._send("data", data)
        if self._under_way > self._high and not self._writer_paused:
            self._writer_paused = True
            self.protocol.pause_writing()

    def writelines(self, data: Any) -> None:
        self.write(b"".join(data))

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._unread:
            self.loop.call_soon(self._read_on, context=self.context)

    def close(self) -> None:
        if not self._closing and not self.over:
            self._closing = True
            self._send("end", b"")
            self.loop.call_soon(self._lost, None, context=self.context)

    def abort(self) -> None:
        if not self.over:
            if not self._closing:
                self._send("reset", b"")
            self._closing = True
            self.loop.call_soon(self._lost, None, context=self.context)

    # ------------------------------------------------------------ the way

    def _send(self, kind: str, data: bytes) -> None:
        network = self.host.network
        if self.is_forgotten:
            return
        if self._held or network.is_cut(self.host.ip, self.peer.host.ip):
            self._held.append((kind, data))
            return
        delay = (_CLOSE_S if self.is_close else self._delay_s) * network.slowness.get(
            self.host.ip, 1.0
        )
        if self._chance.randrange(50) == 0 and not self.is_close:
            delay += self._chance.uniform(*_RETRANSMIT_S)
        # Later than what was sent before: the loop does not say which of two timers of one time is first.
        self._arrives_s = max(self._arrives_s + 1e-6, self.loop.now_s + delay)
        self.loop.call_at(self._arrives_s, self._arrive, kind, data, context=self.peer.context)

    def release(self) -> None:
        """The way is free again: what waited is sent once more."""
        held, self._held = self._held, []
        if held:
            self._arrives_s = self.loop.now_s + self._chance.uniform(*_RETRANSMIT_S)
        for kind, data in held:
            self._send(kind, data)

    def _arrive(self, kind: str, data: bytes) -> None:
        """At the other end, in its context."""
        there = self.peer
        network = self.host.network
        if network.is_cut(self.host.ip, there.host.ip):
            self._held.append((kind, data))
            return
        if there.over or there._closing:
            # No process is there any more. The kernel of a machine that is up says so; to one that is down
            # the bytes are sent again and again.
            if kind == "data" and not self.over:
                if network.hosts[there.host.ip].up:
                    there._send_reset()
                else:
                    self.loop.call_later(
                        _RETRANSMIT_S[1], self._arrive, kind, data, context=there.context
                    )
            return
        self._taken(len(data))
        if kind == "data":
            there._unread.append(data)
            there._read_soon()
        elif kind == "end":
            there.told_end = True
            there._read_on()
        else:
            there._lost(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _send_reset(self) -> None:
        self.loop.call_later(
            self._delay_s,
            self.peer._lost,
            ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
            context=self.peer.context,
        )

    def _taken(self, size: int) -> None:
        self._under_way -= size
        if self._writer_paused and self._under_way <= self._high // 4:
            self._writer_paused = False
            if not self.over:
                self.loop.call_soon(self._may_write, context=self.context)

    def _may_write(self) -> None:
        if not self.over and not self._writer_paused:
            self.protocol.resume_writing()

    def _read_soon(self) -> None:
        if not self._busy_s or self.is_close:
            self._read_on()
        elif not self._reads_soon:
            self._reads_soon = True
            self.loop.call_later(self._busy_s, self._read_on, context=self.context)

    def _read_on(self) -> None:
        self._reads_soon = False
        while self._unread and self._reading and not self.over:
            data = b"".join(self._unread)
            self._unread = [data[_READ_SIZE:]] if len(data) > _READ_SIZE else []
            self.protocol.data_received(data[:_READ_SIZE])
        ended = self.told_end and not self._unread and not self.over and not self._closing
        if ended and not self.protocol.eof_received():
            self.close()

    def _lost(self, error: Exception | None) -> None:
        if not self.over:
            self.over = True
            self.host.ends.pop(self.number, None)
            self.protocol.connection_lost(error)

    def cut_off(self, *, silently: bool) -> None:
        """The process of this end has died; its protocol unwinds without an effect on others."""
        if silently:
            # The machine had not sent it yet.
            self._held.clear()
        elif not self._closing:
            self._send("reset", b"")
        self._closing = True
        self.loop.call_soon(self._lost, None, context=self.context)

    def reset(self) -> None:
        """Something between the two ends breaks the connection; both are told, at different times."""
        for end in (self, self.peer):
            end.loop.call_later(
                self._chance.uniform(0, 0.05),
                end._lost,
                ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
                context=end.context,
            )


class Network:
    """All hosts of a run, and what stands between them."""

    def __init__(self, loop: SimulatedLoop, seed: object) -> None:
        self.loop = loop
        self.hosts: dict[str, Host] = {}
        self.slowness: dict[str, float] = {}
        # Addresses as near to all others as if on one machine: many requests are in one millisecond.
        self.close: set[str] = set()
        self._seed = seed
        self._cuts: set[frozenset[str]] = set()
        self._made: dict[tuple[str, str], int] = {}
        loop.network = self

    def host(self, ip: str) -> Host:
        """A process's worth of `ip`: a new one when the last is dead."""
        found = self.hosts.get(ip)
        if found is None or not found.up:
            ports = found.ports if found is not None else None
            found = self.hosts[ip] = Host(self, ip)
            if ports is not None:
                found.ports = ports
        return found

    def is_cut(self, one: str, other: str) -> bool:
        return bool(self._cuts) and frozenset((one, other)) in self._cuts

    def cut(self, one: str, other: str) -> None:
        self._cuts.add(frozenset((one, other)))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """That cut, or all of them."""
        if one is None or other is None:
            self._cuts.clear()
        else:
            self._cuts.discard(frozenset((one, other)))
        for host in list(self.hosts.values()):
            for end in list(host.ends.values()):
                if not self.is_cut(host.ip, end.peer.host.ip):
                    end.release()

    def forget(self, one: str, other: str) -> None:
        """Let the bytes of every connection that two hosts have now vanish; new ones are carried."""
        for end in self.hosts[one].ends.values():
            if end.peer.host.ip == other:
                end.is_forgotten = end.peer.is_forgotten = True

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two hosts."""
        for end in list(self.hosts[one].ends.values()):
            if end.peer.host.ip == other:
                end.reset()

    # ------------------------------------------------------------ the loop's calls

    def serve(self, factory: Any, ip: Any, port: Any, sock: Any) -> Listener:
        host = HOST.get()
        if sock is None:
            sock = SimulatedSocket()
            sock.bind((ip, port))
        listener = Listener(host, sock, factory)
        if host.up:
            host.listeners[sock.getsockname()[1]] = listener
        return listener

    async def connect(self, factory: Any, ip: str, port: int) -> tuple[End, Any]:
        here = HOST.get()
        made = self._made[here.ip, ip] = self._made.get((here.ip, ip), 0) + 1
        chance = random.Random(f"{self._seed} {here.ip} {ip} {made}")
        await asyncio.sleep(chance.uniform(0.0001, 0.002))
        while True:
            if not here.up:
                raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
            there = self.hosts.get(ip)
            if there is not None and there.up and not self.is_cut(here.ip, ip):
                listener = there.listeners.get(port)
                if listener is not None:
                    break
                if port not in there.bound:
                    await asyncio.sleep(0.001)
                    raise ConnectionRefusedError(
                        errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)
                    )
            await asyncio.sleep(_SYN_RETRY_S)
        local, remote = (here.ip, next(here.ports)), (ip, port)
        near = End(here, local, remote, chance)
        far = End(there, remote, local, chance)
        near.peer, far.peer = far, near
        if here.ip in self.close:
            near.is_close = far.is_close = True
        far.context = listener.context
        near.protocol = factory()
        if there.is_frozen:
            # Its machine takes the connection; it learns of it when it is thawed.
            self.loop.call_soon(far.begin, listener.factory, context=far.context)
        else:
            far.context.run(far.begin, listener.factory)
        near.protocol.connection_made(near)
        return near, near.protocol
