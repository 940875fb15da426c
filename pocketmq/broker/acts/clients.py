"""Client heartbeats and departures, and what clients ask about their group: its members, queue locks.

Source: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor, RocketMQ 4.9.7.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import retry_topic, topic_fault
from pocketmq.model.sql92 import SelectorError, compile_expression, expressions_in_use
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import NotifyConsumerIdsChangedHeader
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.turns import Turns

log = logging.getLogger(__name__)

_UNIT_SUB = 2
_TOLD_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Membership:
    """One group of a heartbeat, as RocketMQ's ConsumerData has it."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: list[SubscriptionData]
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat: what the client consumes and produces. version: an MQVersion ordinal."""

    client_id: str
    language: str
    version: int
    consumers: list[Membership] = field(default_factory=list)
    producers: list[str] = field(default_factory=list)


class ClientActs:
    """Heartbeat, leave, members, queue locks; notifies a group whose members changed."""

    def __init__(self, node: Node, tables: Tables, members: Members) -> None:
        self._role = node.role
        self._config = node.config
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = members.consumers
        self._producers = members.producers
        self._policies = members.policies
        self._locks = members.locks
        # Members of large groups that are still to be notified of a change in their group.
        self._untold: dict[str, set[Peer]] = {}
        # Members of new groups whose retry topic is being stored: once notified, they ask for its route.
        self._early: dict[str, set[Peer]] = {}
        self._notices = Turns[tuple[str, Peer]](node.clock, node.call_soon, self._notice)

    def heartbeat(self, beat: Heartbeat, peer: Peer) -> Iterator[None]:
        """Register the client in its groups, step by step: other requests may run between two steps.

        Raises: Refused (NO_PERMISSION) with the reason of the last group that refused it; the client is
        registered in the others (modes strict and isolate).
        """
        refusal: str | None = None
        # Those of one heartbeat may be more than the cache keeps, and what follows does not wait.
        with expressions_in_use() as use:
            for asked in (each for consumer in beat.consumers for each in consumer.subscriptions):
                if not asked.is_tag:
                    use(asked.sub_string)
                    yield
            for consumer in beat.consumers:
                channel = ClientChannel(peer, beat.client_id, beat.language, beat.version)
                refusal = self._enter(consumer, channel) or refusal
                yield
        for group in beat.producers:
            channel = ClientChannel(peer, beat.client_id, beat.language, beat.version)
            if not self._producers.register(group, channel):
                refusal = f"too many producer groups are registered, so {group[:100]!r} is not"
            yield
        if refusal is not None:
            raise Refused(ResponseCode.NO_PERMISSION, refusal)

    def saves(self) -> "list[asyncio.Future[None]]":
        """Return the pending saves of groups and topics; a response waits for them."""
        saves = [table.stored() for table in (self._groups, self._topics)]
        return [saved for saved in saves if saved is not None]

    def _enter(self, consumer: Membership, channel: ClientChannel) -> str | None:
        """Register a member in its group; return the reason if it is refused."""
        name = consumer.group
        group = self._groups.find(name)
        notify = True
        if group is not None:
            notify = group.notify_consumer_ids_changed_enable
            topic = retry_topic(name)
            # Ours: a name too long for a topic gets no retry topic, instead of one that no client can use.
            if topic_fault(topic) is None and self._role.leads:
                unit = _UNIT_SUB if consumer.unit_mode else 0
                if topic not in self._topics.topics:
                    self._topics.create_internal(topic, group.retry_queues, sys_flag=unit)
                    self._notify_when_stored(name)
        asked = {each.topic: each for each in consumer.subscriptions}
        refusal = self._policies.entered(name).admit(name, channel, asked)
        address = channel.connection.address
        if refusal is not None:
            log.warning("heartbeat refused peer=%s reason=%r", address, refusal)
            self._consumers.unregister(name, channel.connection, notify=notify)
            return refusal
        changed = self._consumers.register(
            name,
            channel,
            consumer.consume_type,
            consumer.message_model,
            consumer.consume_from_where,
            consumer.subscriptions,
            notify=notify,
        )
        if changed:
            log.debug(
                "a group changed by a heartbeat group=%s client=%s peer=%s",
                name,
                channel.client_id,
                address,
            )
        return None

    def leave(self, peer: Peer, *, consumer: str | None, producer: str | None) -> None:
        """Remove a client from a consumer group, a producer group, or both."""
        if producer is not None:
            self._producers.unregister(producer, peer)
        if consumer is not None:
            group = self._groups.find(consumer)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(consumer, peer, notify=notify)

    def check_subscription(self, subscription: SubscriptionData) -> None:
        """Check that an expression can be evaluated. Raises: Refused."""
        if subscription.is_tag:
            return
        if not self._config.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
            )
        try:
            compile_expression(subscription.sub_string)
        except SelectorError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def members(self, group: str, peer: Peer) -> list[str]:
        """Return the client ids that share queues with the caller.

        Raises: Refused (SYSTEM_ERROR) when the group has no members; clients take this as `not now`.
        """
        online = self._consumers.get(group)
        if online is not None and online.channels:
            ids = self._policies.of(group).peers(online, peer)
            if ids:
                return ids
        log.warning("getConsumerGroupInfo failed, %s %s", group, peer.address)
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")

    def lock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock queues for orderly consumption; return those that the client holds now."""
        name = self._policies.of(group).lock_name(group, client_id)
        return self._locks.lock_batch(name, list(queues), client_id)

    def unlock(self, group: str, client_id: str, queues: Sequence[MessageQueue]) -> None:
        """Release a client's queue locks."""
        name = self._policies.of(group).lock_name(group, client_id)
        self._locks.unlock_batch(name, list(queues), client_id)

    def notify_members(self, group: str, peers: list[Peer]) -> None:
        """Notify members to rebalance (NOTIFY_CONSUMER_IDS_CHANGED), skipping disconnected ones.

        A large group is notified in slices, and only once however often it changes meanwhile. A new group is
        notified when name servers know its retry topic.
        """
        if not self._config.notify_consumer_ids_changed_enable:
            return
        early = self._early.get(group)
        if early is not None:
            early.update(peers)
            return
        if len(peers) <= _TOLD_AT_ONCE:
            for peer in peers:
                _tell(group, peer)
            return
        untold = self._untold.setdefault(group, set())
        self._notices.add([(group, peer) for peer in peers if peer not in untold])
        untold.update(peers)

    def _notify_when_stored(self, group: str) -> None:
        saved = self._topics.stored()
        if saved is not None:
            self._early.setdefault(group, set())
            saved.add_done_callback(lambda _: self._notify_early(group))

    def _notify_early(self, group: str) -> None:
        self.notify_members(group, list(self._early.pop(group, ())))

    def _notice(self, notice: tuple[str, Peer]) -> None:
        group, peer = notice
        untold = self._untold[group]
        untold.discard(peer)
        if not untold:
            del self._untold[group]
        _tell(group, peer)


def _tell(group: str, peer: Peer) -> None:
    if peer.writable:
        fields = NotifyConsumerIdsChangedHeader(consumer_group=group).ext()
        peer.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
