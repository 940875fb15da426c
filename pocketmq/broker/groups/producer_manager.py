"""ProducerManager: the connected producers of each group. Source: ProducerManager, RocketMQ 4.9.7.

    group -> connection -> ClientChannel; client id -> connection (for replies, PUSH_REPLY_MESSAGE)

A heartbeat registers a producer; UNREGISTER_CLIENT, a closed connection or 120 s of silence remove it.

Ours: names of groups are free, and each takes memory, so that one connection has GROUPS_MAX at most and all
have REGISTERED_MAX. A client id stays with the account whose connection has it, as it gets the replies.
"""

import logging
from collections.abc import Callable, Iterator

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.turns import CallSoon, Turns

log = logging.getLogger(__name__)

GROUPS_MAX = 5_000
REGISTERED_MAX = 200_000


def _anybody(one: Peer, other: Peer) -> bool:
    return True


class ProducerManager:
    """Owner of the producer tables; only the event loop's thread calls it."""

    def __init__(
        self,
        clock: Clock,
        call_soon: CallSoon | None = None,
        same_account: Callable[[Peer, Peer], bool] = _anybody,
    ) -> None:
        """call_soon: see Turns. same_account: whether two clients have authenticated as the same."""
        self._clock = clock
        self._gone = Turns[tuple[Peer, str]](clock, call_soon, self._forget)
        self.groups: dict[str, dict[Peer, ClientChannel]] = {}
        self._connection_of: dict[str, Peer] = {}
        # Which groups a connection is in, so that its end costs nothing to the others.
        self._groups_of: dict[Peer, set[str]] = {}
        self._turn = 0
        self._same_account = same_account
        self._registered = 0

    def register(self, group: str, channel: ClientChannel) -> bool:
        """Register a producer named by a heartbeat. Returns: False if there are too many."""
        connection = channel.connection
        known = self.groups.get(group, {}).get(connection)
        if known is None:
            count = len(self._groups_of.get(connection, ()))
            if count >= GROUPS_MAX or self._registered >= REGISTERED_MAX:
                return False
            self.groups.setdefault(group, {})[connection] = known = channel
            self._groups_of.setdefault(connection, set()).add(group)
            self._registered += 1
            owner = self._connection_of.get(channel.client_id)
            if owner is None or not owner.writable or self._same_account(owner, connection):
                self._connection_of[channel.client_id] = connection
            log.info("producer joined group=%s %s", group, channel)
        known.seen(self._clock.now_ms(), self._clock.monotonic_ms())
        return True

    def unregister(self, group: str, connection: Peer) -> None:
        """Remove a producer that leaves the group."""
        if self._remove(group, connection) is not None:
            log.info("producer left group=%s address=%s", group, connection.address)

    def connection_closed(self, connection: Peer) -> None:
        """Remove the connection from every group."""
        self._gone.add(
            [(connection, group) for group in sorted(self._groups_of.get(connection, ()))]
        )

    def _forget(self, gone: tuple[Peer, str]) -> None:
        connection, group = gone
        channel = self._remove(group, connection)
        log.info("producer lost, its connection has ended group=%s %s", group, channel)

    def _remove(self, group: str, connection: Peer) -> ClientChannel | None:
        members = self.groups.get(group)
        channel = members.pop(connection, None) if members is not None else None
        if channel is None:
            return None
        self._registered -= 1
        # A client id can produce for several groups over one connection.
        names = self._groups_of[connection]
        names.discard(group)
        if not names:
            del self._groups_of[connection]
            if self._connection_of.get(channel.client_id) is connection:
                del self._connection_of[channel.client_id]
        if not members:
            del self.groups[group]
        return channel

    def scan(self) -> None:
        """Remove clients silent for 120 s, and close their connections."""
        now = self._clock.monotonic_ms()
        for group, members in list(self.groups.items()):
            for connection, channel in list(members.items()):
                if channel.expired(now):
                    self._remove(group, connection)
                    log.warning(
                        "SCAN: remove expired channel[%s] from ProducerManager groupChannelTable, "
                        "producer group name: %s",
                        connection.address,
                        group,
                    )
                    connection.abort()

    def find(self, client_id: str) -> Peer | None:
        """Return the connection of a producer by its client id."""
        return self._connection_of.get(client_id)

    def available(
        self, group: str | None, is_allowed: Callable[[Peer], bool] = lambda _: True
    ) -> Peer | None:
        """Return an open, allowed connection of the group, round robin; None if absent."""
        members = self.groups.get(group or "")
        if not members:
            log.warning("Check transaction failed, channel table is empty. groupId=%s", group)
            return None
        connections = list(members)
        self._turn += 1
        for place in range(len(connections)):
            connection = connections[(self._turn + place) % len(connections)]
            if connection.writable and is_allowed(connection):
                return connection
        return None

    def channels(self) -> Iterator[tuple[str, ClientChannel]]:
        """Yield (group, channel) of every connected producer."""
        for group, members in self.groups.items():
            for channel in members.values():
                yield group, channel
