"""ConsumerManager: the consumer groups that are online. A pure state machine. Source: ConsumerManager,
ConsumerGroupInfo, RocketMQ 4.9.7; acceptance S64-S72.

1. A group has ONE subscription per topic, shared by all its members (E2, E3).
2. A subscription is replaced only by one of a greater subVersion; an equal or older one is ignored, and
   a replacement alone notifies no member.
3. A topic that a heartbeat does not name is removed from the group, even if other members subscribe it: two
   members with different topics remove each other's every 30 s.
4. Members are keyed by connection. A new connection, a new topic or a removed topic is a *change*: all
   members, the new one too, are notified to rebalance (NOTIFY_CONSUMER_IDS_CHANGED).
5. consumeType, messageModel and consumeFromWhere are those of the last heartbeat (S71).
6. A group ends with its last member.
Ours: each member's own subscription is kept beside the group's (ClientChannel.subscriptions).
"""

import logging

from pocketmq.broker.events import Events
from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_group import ConsumerGroup, Merge
from pocketmq.model.agreement import same
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.turns import CallSoon, Turns

log = logging.getLogger(__name__)

_OFFLINE_MAX = 10_000


class ConsumerManager:
    """Owner of the groups; it sends nothing itself but raises events."""

    def __init__(
        self,
        clock: Clock,
        events: Events | None = None,
        *,
        merge: Merge | None = None,
        call_soon: CallSoon | None = None,
    ) -> None:
        """call_soon: see Turns."""
        self._clock = clock
        # Disconnected members not yet removed, and the groups that they were in.
        self._gone = Turns[tuple[Peer, str]](clock, call_soon, self._forget)
        self._losses = Turns[str](clock, call_soon, self._settle)
        self._bereft: set[str] = set()
        self._events = events or Events()
        self._merge = merge
        self.groups: dict[str, ConsumerGroup] = {}
        # When the last member left, of the groups that have been offline for the shortest time, wall ms.
        self.offline_since: dict[str, int] = {}
        # Which groups a connection is in, so that its end costs nothing to the others.
        self._groups_of: dict[Peer, set[str]] = {}

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group if it is online."""
        return self.groups.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the group's current subscription of a topic, or None."""
        found = self.groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the online groups that subscribe the topic."""
        return {name for name, group in self.groups.items() if topic in group.subscriptions}

    def register(
        self,
        name: str,
        channel: ClientChannel,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: list[SubscriptionData],
        *,
        notify: bool = True,
    ) -> bool:
        """Register one group of a heartbeat (S67); True if it was a change, announced if `notify`."""
        group = self.groups.get(name)
        if group is None:
            group = ConsumerGroup(name, consume_type, message_model, consume_from_where)
            self.groups[name] = group
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        channel.subscriptions = {subscription.topic: subscription for subscription in subscriptions}
        known = group.channels.get(channel.connection)
        asks_other = known is None or not same(known.subscriptions, channel.subscriptions)
        entered = group.update_channel(channel, self._clock.now_ms(), self._clock.monotonic_ms())
        self._groups_of.setdefault(channel.connection, set()).add(name)
        merged = None if self._merge is None else self._merge(group, channel)
        changed = group.update_subscriptions(subscriptions if merged is None else merged) or entered
        if asks_other:
            self._events.members_changed(group)
        if changed and notify:
            self._changed(group)
        self._events.heartbeat_taken(name, subscriptions)
        return changed

    def unregister(self, name: str, connection: Peer, *, notify: bool = True) -> None:
        """Remove a client that leaves the group."""
        group = self.groups.get(name)
        if group is None:
            return
        channel = self._remove(group, connection)
        if channel is not None:
            log.info("member left group=%s %s", name, channel)
        self._drop_if_empty(group)
        if notify:
            self._changed(group)

    def connection_closed(self, connection: Peer) -> None:
        """Remove the members of a closed connection at once and notify the others (S72)."""
        names = sorted(self._groups_of.pop(connection, ()))
        self._gone.add([(connection, name) for name in names])

    def _forget(self, gone: tuple[Peer, str]) -> None:
        connection, name = gone
        group = self.groups.get(name)
        channel = group.channels.pop(connection, None) if group is not None else None
        if channel is None:
            return
        log.warning(
            "member lost, its connection has ended group=%s %s",
            name,
            channel,
        )
        # Once for all members that go in a turn.
        if name not in self._bereft:
            self._bereft.add(name)
            self._losses.add([name])

    def _settle(self, name: str) -> None:
        """Announce the loss of members whose connections ended, once per group."""
        self._bereft.discard(name)
        group = self.groups.get(name)
        if group is not None:
            self._drop_if_empty(group)
            self._changed(group)

    def scan(self) -> None:
        """Remove members silent for 120 s, close their connections, notify no other member (wire.md 4.1)."""
        now = self._clock.monotonic_ms()
        for name, group in list(self.groups.items()):
            expired = False
            for connection, channel in list(group.channels.items()):
                if channel.expired(now):
                    expired = True
                    log.warning(
                        "SCAN: remove expired channel from ConsumerManager consumerTable. "
                        "channel=%s, consumerGroup=%s",
                        connection.address,
                        name,
                    )
                    self._remove(group, connection)
                    connection.abort()
            if expired:
                self._drop_if_empty(group)

    def _remove(self, group: ConsumerGroup, connection: Peer) -> ClientChannel | None:
        names = self._groups_of.get(connection)
        if names is not None:
            names.discard(group.name)
            if not names:
                del self._groups_of[connection]
        return group.channels.pop(connection, None)

    def _drop_if_empty(self, group: ConsumerGroup) -> None:
        self._events.members_changed(group)
        if group.channels or self.groups.get(group.name) is not group:
            return
        del self.groups[group.name]
        self.offline_since.pop(group.name, None)
        self.offline_since[group.name] = self._clock.now_ms()
        if len(self.offline_since) > _OFFLINE_MAX:
            del self.offline_since[next(iter(self.offline_since))]
        log.info("group has no member any more group=%s", group.name)
        self._events.group_offline(group.name)

    def _changed(self, group: ConsumerGroup) -> None:
        if group.channels:
            self._events.must_rebalance(group.name, list(group.channels))
