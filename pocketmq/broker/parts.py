"""The parts of a broker, in the groups in which they are passed on; services.py has the background ones.

A part receives the groups that it needs, never the broker. assembly.py creates them all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.broker.delivery.record import DeliveryRecord
    from pocketmq.broker.delivery.wishes import Wishes
    from pocketmq.broker.durability import Durability
    from pocketmq.broker.figures.page_cache import PageCache
    from pocketmq.broker.figures.stats import BrokerStats
    from pocketmq.broker.groups.consumer_manager import ConsumerManager
    from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
    from pocketmq.broker.groups.producer_manager import ProducerManager
    from pocketmq.broker.groups.rebalance_lock import RebalanceLock
    from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
    from pocketmq.broker.internal_append import InternalAppend
    from pocketmq.broker.lite_topics import LiteTopics
    from pocketmq.broker.modes.guard import GroupGuard
    from pocketmq.broker.modes.isolate import IsolatedGroups
    from pocketmq.broker.modes.mode import GroupModes
    from pocketmq.broker.modes.policy import Policies
    from pocketmq.broker.modes.strict import StrictGroups
    from pocketmq.broker.once.send_once import SendOnce
    from pocketmq.broker.pop.order_info import ConsumerOrderInfo
    from pocketmq.broker.pop.request_mode import MessageRequestModeManager
    from pocketmq.broker.schedules.table import ScheduleTable
    from pocketmq.broker.sql92.consumer_filter import ConsumerFilterManager
    from pocketmq.broker.tables.changed_settings import ChangedSettings
    from pocketmq.broker.tables.config_manager import ConfigManager
    from pocketmq.broker.tables.topic_config import TopicConfigManager
    from pocketmq.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of config/*.json, loaded at the start in the order of `managers`.

    changed: settings that were changed while the broker ran; loaded before the others are created.
    """

    changed: "ChangedSettings"
    topics: "TopicConfigManager"
    groups: "SubscriptionGroupManager"
    offsets: "ConsumerOffsetManager"
    filters: "ConsumerFilterManager"
    isolated: "IsolatedGroups"
    request_modes: "MessageRequestModeManager"
    order_info: "ConsumerOrderInfo"
    wishes: "Wishes"
    schedules: "ScheduleTable"

    @property
    def managers(self) -> "tuple[ConfigManager, ...]":
        """Return all others. Groups come before isolated groups, which look at the groups' modes."""
        return (
            self.topics,
            self.groups,
            self.offsets,
            self.filters,
            self.isolated,
            self.request_modes,
            self.order_info,
            self.wishes,
            self.schedules,
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
    put: "InternalAppend"
    deliveries: "DeliveryRecord"
    reach: "PageCache"
    durability: "Durability"
    once: "SendOnce"
    lite: "LiteTopics"
