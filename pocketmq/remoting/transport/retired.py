"""Retired: a connection over which nothing came while a request waited: it may lead nowhere.

A firewall, a NAT or a balancer has forgotten it, or the server stands still for a while. Nothing more is sent
over it; requests that wait there may have their answers until another connection proves to work.
"""

import asyncio
import socket
from collections.abc import Sequence

from pocketmq.remoting.transport.connection import Connection

RETIRED_MAX = 4
"""So many retired connections to one address; the oldest is closed for another."""
_LOOK_S = 0.5
# How the kernel watches a connection, s: an idle peer is asked after 30 s, three times; what is not
# acknowledged for a minute ends it.
_IDLE_S, _PAUSE_S, _TIMES = 30, 10, 3
_UNACKNOWLEDGED_MS = 60_000


class Retired:
    """Owner: the RemotingClient. is_replaced: another connection to the address has had an answer since."""

    def __init__(self, address: str, connection: Connection) -> None:
        self.address = address
        self.connection = connection
        self.is_replaced = False
        self._heard_ms = connection.last_read_ms

    def make_room(self, others: Sequence["Retired"]) -> None:
        """Close the oldest of those to the same address if there are too many."""
        alike = [each for each in others if each.address == self.address]
        if len(alike) >= RETIRED_MAX:
            alike[0].connection.abort()

    async def over(self) -> None:
        """Wait until no request waits there any more, or it has been silent beside one that works."""
        connection = self.connection
        looks = 0
        while looks < 2 and connection.is_asking and not connection.closed:
            await asyncio.sleep(_LOOK_S)
            is_dead = self.is_replaced and connection.last_read_ms == self._heard_ms
            looks = looks + 1 if is_dead else 0


def watch_over(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end the connection if its peer vanishes, as far as this system can."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PAUSE_S),
        ("TCP_KEEPCNT", _TIMES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
