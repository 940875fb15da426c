"""The parts of a broker, in the groups in which they are passed on.

A part receives the groups that it needs, never the broker. assembly.py creates them all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.broker.bearer import BearerAccess
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.broker.config_manager import ConfigManager
    from pocketmq.broker.delivery.record import DeliveryRecord
    from pocketmq.broker.delivery.track import MessageTracks
    from pocketmq.broker.events import Events
    from pocketmq.broker.groups.consumer_manager import ConsumerManager
    from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
    from pocketmq.broker.groups.guard import GroupGuard
    from pocketmq.broker.groups.isolate import IsolatedGroups
    from pocketmq.broker.groups.member_reports import MemberReports
    from pocketmq.broker.groups.mode import GroupModes
    from pocketmq.broker.groups.policy import Policies
    from pocketmq.broker.groups.rebalance_lock import RebalanceLock
    from pocketmq.broker.groups.strict import StrictGroups
    from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
    from pocketmq.broker.ha.replication import Replication
    from pocketmq.broker.lags import Lags
    from pocketmq.broker.long_polling import LongPolling
    from pocketmq.broker.memory_reach import MemoryReach
    from pocketmq.broker.message_put import MessagePut
    from pocketmq.broker.pop.order_info import ConsumerOrderInfo
    from pocketmq.broker.pop.request_mode import MessageRequestModeManager
    from pocketmq.broker.pop.service import PopService
    from pocketmq.broker.producer_manager import ProducerManager
    from pocketmq.broker.promise import Promise
    from pocketmq.broker.role import Role
    from pocketmq.broker.sql92.consumer_filter import ConsumerFilterManager
    from pocketmq.broker.stats import BrokerStats
    from pocketmq.broker.topic_config import TopicConfigManager
    from pocketmq.broker.transaction_check import HalfMessages, TransactionCheck
    from pocketmq.remoting.clock import Clock
    from pocketmq.remoting.peer import Peer
    from pocketmq.store import DelayService, MessageStore
    from pocketmq.store.timer.service import TimerService


def _anybody(peer: "Peer", about: object) -> bool:
    """Allow everyone: signatures are not checked."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This broker, apart from its parts: its identity, clock and events.

    address: `ip:port` advertised to clients; store_host: the same in the form of records. call_soon: runs a
    function in the next turn of the event loop; None, in tests: woken requests are run by hand.
    may_publish: whether a client, by its last signature, may publish to a topic; same_account: whether two
    have signed as the same account. accounts: checks signatures; None: nothing does.
    """

    config: "BrokerConfig"
    clock: "Clock"
    events: "Events"
    role: "Role"
    address: str
    store_host: bytes
    call_soon: Callable[[Callable[[], None]], object] | None = None
    may_publish: "Callable[[Peer, str], bool]" = _anybody
    same_account: "Callable[[Peer, Peer], bool]" = _anybody
    accounts: "BearerAccess | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of config/*.json, loaded at the start in the order of `managers`."""

    topics: "TopicConfigManager"
    groups: "SubscriptionGroupManager"
    offsets: "ConsumerOffsetManager"
    filters: "ConsumerFilterManager"
    isolated: "IsolatedGroups"
    request_modes: "MessageRequestModeManager"
    order_info: "ConsumerOrderInfo"

    @property
    def managers(self) -> "tuple[ConfigManager, ...]":
        """Return all of them. Groups come before isolated groups, which look at the groups' modes."""
        return (
            self.topics,
            self.groups,
            self.offsets,
            self.filters,
            self.isolated,
            self.request_modes,
            self.order_info,
        )

    def cut_offsets(self, max_offset: Callable[[str, int], int]) -> None:
        """Move groups beyond the end of a queue back to it: what is stored there next is still to be read."""
        self.offsets.cut(max_offset)
        self.isolated.cut(max_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The connected clients, and the policy for members that subscribe differently."""

    consumers: "ConsumerManager"
    producers: "ProducerManager"
    locks: "RebalanceLock"
    modes: "GroupModes"
    strict: "StrictGroups"
    policies: "Policies"
    guard: "GroupGuard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Where messages are stored and counted, deliveries recorded, and safety awaited."""

    store: "MessageStore"
    stats: "BrokerStats"
    put: "MessagePut"
    deliveries: "DeliveryRecord"
    reach: "MemoryReach"
    promise: "Promise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The background services."""

    delay: "DelayService"
    timer: "TimerService"
    half: "HalfMessages"
    check: "TransactionCheck"
    pop: "PopService"
    replication: "Replication"
    long_polling: "LongPolling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that handles requests, without a socket."""

    node: Node
    tables: Tables
    members: Members
    messages: Messages
    services: Services
    tracks: "MessageTracks"
    lags: "Lags"
    reports: "MemberReports"
