"""policies.of(group): how a group treats members that subscribe differently.

    question        compatible (RocketMQ)        strict                        isolate
    admit           every client                 clients that subscribe alike  while there are few sub-groups
    shown           the last heartbeat's         the same                      what all members ask together
    peers           all members                  the same                      members that ask the same
    start           the group's offset           the same                      the sub-group's
    filter          the group's subscription     none for a refused client     the sub-group's messages
    commit          the group's offset           the same                      the sub-group's; members' only
    lock_name       the group                    the same                      the sub-group
    pop_refusal     -                            refused clients               every client
Request handlers ask these questions and never look at the mode. A changed mode takes effect within a second
(IsolatedGroups.tick).
"""

import logging
from collections.abc import Mapping

from pocketmq.broker.filters.pull_filter import PullFilters, brings_its_own
from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_group import BROADCASTING, ConsumerGroup
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.modes.isolate import IsolatedGroups
from pocketmq.broker.modes.mode import GroupMode, GroupModes
from pocketmq.broker.modes.strict import StrictGroups
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.model.subscription import SubscriptionData
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

Subscriptions = Mapping[str, SubscriptionData]


class Compatible:
    """RocketMQ's behaviour; the base of the others.

    keeps_offsets: whether `pulled` and `commit` do anything, so that most pulls need not ask.
    """

    keeps_offsets = False

    def __init__(
        self, consumers: ConsumerManager, offsets: ConsumerOffsetManager, filters: PullFilters
    ) -> None:
        self._consumers = consumers
        self._offsets = offsets
        self._filters = filters

    def admit(self, group: str, channel: ClientChannel, asked: Subscriptions) -> str | None:
        """Return why a member with this subscription is refused; None if it is admitted."""
        return None

    def peers(self, group: ConsumerGroup, peer: Peer) -> list[str]:
        """Return the client ids that share queues with the caller, each once."""
        # Ours: a closing connection no longer counts, and two connections of one client count as one member:
        # each would take the first share, and the queues of the second share would have no reader.
        members = group.channels.values()
        return list(dict.fromkeys(each.client_id for each in members if each.connection.writable))

    def start(self, queue: GroupQueue, peer: Peer) -> int:
        """Return a member's start offset in a queue; -1 if none is stored."""
        return self._offsets.query(*queue)

    def filter(self, pull: PullMessageHeader, group: GroupConfig, peer: Peer) -> EntryFilter | None:
        """Return a pull's filter; None lets everything through. Raises: Refused, OffsetMoved."""
        return self._filters.of_group(pull, group)

    def reset_to(self, queue: GroupQueue, offset: int, peer: Peer) -> int | None:
        """Return where a reset redirects a member that pulls from `offset`; None: nowhere."""
        return self._offsets.reset_to(*queue, offset, peer)

    def pulled(self, pull: PullMessageHeader, peer: Peer, following: int) -> None:
        """Note that a member's pull was answered or held, with `following` as its next offset."""

    def commit(self, queue: GroupQueue, offset: int, peer: Peer, *, as_member: bool) -> bool:
        """Handle a commit; True if done here, False if it is to become the group's offset.

        as_member: sent one-way, as members do; administrators wait for a response.
        """
        return False

    def lock_name(self, group: str, client_id: str) -> str:
        """Return the name that a client's queue locks are kept under."""
        return group

    def may_pop(self, group: str) -> bool:
        """Return True if the broker may assign members to pop."""
        return True

    def pop_refusal(self, group: str, peer: Peer) -> str | None:
        """Return why this member may not pop; None if it may."""
        return None


class Strict(Compatible):
    """One subscription per group; a member that subscribes something else is not admitted (strict.py)."""

    def __init__(
        self,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        filters: PullFilters,
        groups: StrictGroups,
    ) -> None:
        super().__init__(consumers, offsets, filters)
        self._groups = groups

    def admit(self, group: str, channel: ClientChannel, asked: Subscriptions) -> str | None:
        online = self._consumers.get(group)
        return self._groups.check(online, group, channel.connection, channel.client_id, asked)

    def filter(self, pull: PullMessageHeader, group: GroupConfig, peer: Peer) -> EntryFilter | None:
        remark = self._groups.remark(pull.consumer_group, peer)
        if remark is not None:
            log.warning("pull refused peer=%s reason=%r", peer.address, remark)
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        return super().filter(pull, group, peer)

    def pop_refusal(self, group: str, peer: Peer) -> str | None:
        return self._groups.remark(group, peer)


class Isolate(Compatible):
    """Sub-groups that lose nothing (isolate.py)."""

    keeps_offsets = True

    def __init__(
        self,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        filters: PullFilters,
        groups: IsolatedGroups,
    ) -> None:
        super().__init__(consumers, offsets, filters)
        self._groups = groups

    def admit(self, group: str, channel: ClientChannel, asked: Subscriptions) -> str | None:
        return self._groups.refusal(group, asked)

    def peers(self, group: ConsumerGroup, peer: Peer) -> list[str]:
        found = self._groups.peers(group, peer)
        return super().peers(group, peer) if found is None else found

    def start(self, queue: GroupQueue, peer: Peer) -> int:
        own = self._groups.start(queue.group, peer, queue.topic, queue.queue_id)
        return super().start(queue, peer) if own is None else own

    def filter(self, pull: PullMessageHeader, group: GroupConfig, peer: Peer) -> EntryFilter | None:
        name, topic = pull.consumer_group, pull.topic
        online = self._consumers.groups.get(name)
        isolated = self._groups.groups[name]
        sub_group = isolated.of(peer)
        if online is None or sub_group is None:
            if brings_its_own(pull):
                # An administrator looks at messages in the group's name.
                return self._filters.own(pull)
            raise self._filters.nobody(name)
        own = online.channels[peer].subscriptions.get(topic)
        if own is None:
            raise self._filters.not_subscribed(name, topic)
        if own.sub_version < pull.sub_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if online.message_model == BROADCASTING:
            return self._filters.tags(own) if own.is_tag else self._filters.own(pull)
        isolated.check_pull(sub_group, (topic, pull.queue_id), pull.queue_offset)
        return isolated.order.filter(sub_group, topic, pull.queue_id, pull.queue_offset)

    def reset_to(self, queue: GroupQueue, offset: int, peer: Peer) -> int | None:
        # It has sent its members there by itself.
        super().reset_to(queue, offset, peer)
        return None

    def pulled(self, pull: PullMessageHeader, peer: Peer, following: int) -> None:
        self._groups.pulled(pull.consumer_group, peer, pull.topic, pull.queue_id, following)

    def commit(self, queue: GroupQueue, offset: int, peer: Peer, *, as_member: bool) -> bool:
        group, topic, queue_id = queue
        if self._groups.commit(group, peer, topic, queue_id, offset):
            return True
        if as_member:
            # This member cannot be identified, because it does not use the connection of its
            # heartbeats.
            log.warning(
                "ignored a commit to an isolated group, because its connection is no member's; if "
                "vipChannelEnabled is on in that client, turn it off group=%s peer=%s",
                group,
                peer.address,
            )
            return True
        return False

    def lock_name(self, group: str, client_id: str) -> str:
        return self._groups.lock_group(group, client_id)

    def may_pop(self, group: str) -> bool:
        return False

    def pop_refusal(self, group: str, peer: Peer) -> str | None:
        return (
            f"group {group} is isolated: its messages are shared by subscription, which is not possible "
            "with pop. Let its members pull, or give each a group of its own"
        )


class Policies:
    """Looks up the policy of a group; owns none of the tables."""

    def __init__(
        self,
        modes: GroupModes,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        filters: PullFilters,
        strict: StrictGroups,
        isolated: IsolatedGroups,
    ) -> None:
        self._modes = modes
        self.describe = isolated.describe
        self._refusing = strict.refused
        self._isolated = isolated.groups
        self._compatible = Compatible(consumers, offsets, filters)
        self._strict = Strict(consumers, offsets, filters, strict)
        self._isolate = Isolate(consumers, offsets, filters, isolated)

    def of(self, group: str) -> Compatible:
        """Return the group's current policy. Called for every pull: two look-ups."""
        if group in self._isolated:
            return self._isolate
        if group in self._refusing:
            return self._strict
        return self._compatible

    def entered(self, group: str) -> Compatible:
        """Return the policy that admits a new member: by the group's mode, whatever members it has."""
        mode = self._modes.mode(group)
        if mode is GroupMode.COMPATIBLE:
            return self._compatible
        return self._isolate if mode is GroupMode.ISOLATE else self._strict
