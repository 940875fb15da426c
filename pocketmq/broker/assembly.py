"""assemble: create the parts of a broker and connect their events. The only place that knows them all.

Nothing here opens a socket or runs a task: tests assemble a broker around a store and call its acts.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pocketmq.books.rows import EventKind
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delivery.record import DeliveryRecord
from pocketmq.broker.delivery.surroundings import Surroundings
from pocketmq.broker.delivery.wishes import Wishes
from pocketmq.broker.durability import Durability
from pocketmq.broker.figures.consumed import Consumed
from pocketmq.broker.figures.lags import Lags
from pocketmq.broker.figures.page_cache import PageCache
from pocketmq.broker.figures.stats import BrokerStats, Totals
from pocketmq.broker.filters.pull_filter import PullFilters
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.groups.member_reports import MemberReports
from pocketmq.broker.groups.producer_manager import ProducerManager
from pocketmq.broker.groups.rebalance_lock import RebalanceLock
from pocketmq.broker.groups.starts import Starts
from pocketmq.broker.groups.subscription_group import SubscriptionGroupManager
from pocketmq.broker.ha.copied_state import CopiedState, PocketState
from pocketmq.broker.ha.replicas import ReplicaWaits
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.ha.slaves import Slaves
from pocketmq.broker.internal_append import InternalAppend, TimerAppend
from pocketmq.broker.ledger.watch import BalanceWatch
from pocketmq.broker.lite_topics import LiteTopics
from pocketmq.broker.modes.guard import GroupGuard
from pocketmq.broker.modes.isolate import IsolatedGroups, first_match_in
from pocketmq.broker.modes.mode import GroupMode, GroupModes
from pocketmq.broker.modes.policy import Policies
from pocketmq.broker.modes.strict import StrictGroups
from pocketmq.broker.node import Node
from pocketmq.broker.once.send_once import SendOnce
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.order_info import ConsumerOrderInfo
from pocketmq.broker.pop.request_mode import MessageRequestModeManager
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.schedules.service import ScheduleService
from pocketmq.broker.schedules.table import ScheduleTable
from pocketmq.broker.services import LiteDoor, Parts, Services
from pocketmq.broker.sql92.bloom import BloomFilter
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterManager
from pocketmq.broker.tables.changed_settings import FILE as CHANGED_SETTINGS
from pocketmq.broker.tables.changed_settings import ChangedSettings
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.transaction_check import HalfMessages, TransactionCheck
from pocketmq.broker.waiting.long_polling import LongPolling
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.record import Record
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.serving.log_levels import apply_levels, start_with_levels
from pocketmq.store import Appended, ConfigFile, DelayService, MessageStore, OffsetFile
from pocketmq.store.delay import Deliver
from pocketmq.store.timer.service import TimerService

if TYPE_CHECKING:
    from pocketmq.broker.access.acl import PlainAccessValidator
    from pocketmq.broker.access.users.validator import UserAccess

    AccessChecks = PlainAccessValidator | UserAccess


def configured_accounts(config: BrokerConfig, folder: str) -> "AccessChecks | None":
    """Return the access checks if they are enabled. folder: of the store. Raises: IllegalArgument."""
    if config.authorization_enabled and not config.authentication_enabled:
        raise IllegalArgument("authorizationEnabled=true needs authenticationEnabled=true")
    if config.acl_enable and config.authentication_enabled:
        raise IllegalArgument(
            "aclEnable=true and authenticationEnabled=true are two ways to check signatures: set one of "
            "them. `pocketmq account import` makes users of the accounts of plain_acl.yml"
        )
    if config.authentication_enabled:
        from pocketmq.broker.access.users.validator import UserAccess

        return UserAccess.configured(config, folder)
    if not config.acl_enable:
        return None
    from pocketmq.broker.access.acl import PlainAccessValidator

    return PlainAccessValidator.configured(config, folder)


def with_accounts(node: Node, acl: "AccessChecks | None") -> Node:
    """Return the node with the access checks that its parts ask."""
    if acl is None:
        return node
    node = replace(
        node,
        accounts=acl,
        may_publish=acl.may_publish,
        same_account=acl.same_account,
        signer=acl.signer,
    )
    if node.config.authentication_enabled:
        return replace(node, users=cast("UserAccess", acl).table)
    return replace(node, files=cast("PlainAccessValidator", acl))


def assemble(node: Node, store: MessageStore) -> Parts:
    """Create the parts around a store that was given `node.events.arrivals`; of tables only
    the changed settings are loaded.
    """
    tables, modes = _tables(node, store)
    consumers = ConsumerManager(
        node.clock, node.events, merge=tables.isolated.merged, call_soon=node.call_soon
    )
    deliver = _deliver(store, tables.topics)
    delay = DelayService(store, node.clock, deliver=deliver)
    timer_log_size = node.config.mapped_file_size_timer_log
    timer = TimerService(store, node.clock, log_file_size=timer_log_size, deliver=deliver)
    ways = _put_ways(node, tables, delay, timer)
    messages = _messages(node, tables, consumers, store, ways, lambda it: half.is_undecided(it))
    strict = StrictGroups()
    pull_filters = PullFilters(node.config, consumers, tables.filters)
    members = Members(
        consumers=consumers,
        producers=ProducerManager(node.clock, node.call_soon, node.same_account),
        locks=RebalanceLock(node.clock),
        modes=modes,
        strict=strict,
        policies=Policies(modes, consumers, tables.offsets, pull_filters, strict, tables.isolated),
        guard=_guard(node, tables, consumers, modes, messages.deliveries),
    )
    half = HalfMessages(store, tables.offsets, messages.put, store_host=node.store_host)
    pop = PopService(node, tables, messages)

    def load_anew() -> None:
        half.load()
        for changed in (pop, timer, delay):
            changed.load_anew()
        for part in (messages.once, messages.lite, schedules):
            part.load()

    schedules = ScheduleService(node, tables.schedules, tables.topics, store, messages.put)
    copied = CopiedState(
        delay, timer, _own_state(node, tables, members, messages), messages.deliveries.files
    )
    services = Services(
        delay=delay,
        timer=timer,
        schedules=schedules,
        half=half,
        check=TransactionCheck(node, tables.topics, members.producers, messages, half),
        pop=pop,
        lite=LiteDoor(node, tables, messages),
        replication=_replication(node, tables, messages, copied, load_anew),
        long_polling=LongPolling(
            node.clock,
            store.max_offset,
            node.call_soon,
            sizes_max=lambda: (node.config.pull_polling_size, node.config.max_pull_polling_size),
        ),
    )

    reports = MemberReports(node.config.broker_name, node.clock, consumers)
    parts = Parts(
        node=node,
        tables=tables,
        members=members,
        messages=messages,
        services=services,
        lags=Lags(tables, store),
        reports=reports,
        balances=BalanceWatch(node, tables, members, messages, pop, reports),
    )
    connect(parts)
    return parts


def connect(parts: Parts) -> None:
    """Subscribe each part to the events it needs."""
    start_with_levels(parts.node.config.log_levels)
    events, tables, members = parts.node.events, parts.tables, parts.members
    pop, long_polling = parts.services.pop, parts.services.long_polling

    def note_reset(group: str, topic: str, queue_id: int, offset: int, text: str) -> None:
        old = max(tables.offsets.query(group, topic, queue_id), 0)
        key = (group, topic, queue_id)
        if old != offset:
            parts.messages.deliveries.event(EventKind.RESET, key, old, offset, text)

    def settings_changed(names: set[str]) -> None:
        if names & {"brokerPermission", "sendOnce"}:
            tables.topics.tell_again()
        if "enableConsumeQueueExt" in names:
            parts.messages.store.take_settings()
        if "enableCalcFilterBitMap" in names:
            calculate_bit_maps()
        if "logLevels" in names:
            apply_levels(parts.node.config.log_levels)

    def calculate_bit_maps() -> None:
        enabled = parts.node.config.enable_calc_filter_bit_map
        events.arrivals.mapped_by(tables.filters.bit_map_of if enabled else None)

    events.members_changed.to(
        tables.isolated.members_changed,
        members.guard.members_changed,
        tables.wishes.members_changed,
        parts.messages.deliveries.members_changed,
    )
    events.topics_changed.to(lambda changed: parts.messages.lite.topics_changed())
    events.heartbeat_taken.to(tables.filters.register)
    events.group_offline.to(tables.filters.unregister)
    events.offset_set.to(note_reset)
    events.offset_reset.to(
        tables.isolated.reset,
        pop.offset_reset,
        # Held pulls are notified at once.
        lambda group, topic, queue_id, offset: long_polling.wake_topic(topic),
    )
    events.offset_copied.to(tables.isolated.reset, pop.offset_reset)
    events.offsets_removed.to(tables.isolated.forget, pop.forget, parts.messages.deliveries.forget)
    events.group_deleted.to(pop.group_deleted, tables.wishes.forget)
    events.shares_changed.to(long_polling.wake_topic)
    events.poppable.to(pop.poppable)
    # Before the first pop waits, pops cost a send nothing.
    waiting = (long_polling, pop.polling, pop.notifications)
    events.pop_held.to(pop.wake, lambda: events.arrivals.to(*waiting))
    events.arrivals.to(long_polling)
    events.slaves_awaited.to(parts.services.replication.listener.wake)
    events.rights_lost.to(parts.services.replication.listener.drop_strangers)
    events.settings_changed.to(settings_changed)
    events.connection_closed.to(
        members.producers.connection_closed,
        members.consumers.connection_closed,
        pop.connection_closed,
        parts.services.lite.connection_closed,
        long_polling.connection_closed,
        members.strict.connection_closed,
    )
    calculate_bit_maps()


def _own_state(node: Node, tables: Tables, members: Members, messages: Messages) -> PocketState:
    return PocketState(
        tables.isolated,
        tables.order_info,
        members.locks,
        members.consumers,
        messages.deliveries.starts,
        messages.store,
        tables.schedules,
        node.users,
    )


def _tables(node: Node, store: MessageStore) -> tuple[Tables, GroupModes]:
    config, clock, events = node.config, node.clock, node.events
    folder = os.path.join(store.config.store_path_root_dir, "config")

    def file(name: str) -> ConfigFile:
        return ConfigFile(os.path.join(folder, name))

    changed = ChangedSettings(
        file(CHANGED_SETTINGS), (config, store.config), clock.now_ms(), events.settings_changed
    )
    changed.load()
    changed.apply()
    groups = SubscriptionGroupManager(file("subscriptionGroup.json"), config, clock)
    offsets = ConsumerOffsetManager(
        OffsetFile(folder),
        events,
        lambda: config.consumer_offset_table_size,
        Consumed(clock),
        Starts(clock),
    )
    modes = GroupModes(config, groups)
    bloom = BloomFilter(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    tables = Tables(
        changed=changed,
        topics=TopicConfigManager(file("topics.json"), config, clock, events),
        groups=groups,
        offsets=offsets,
        filters=ConsumerFilterManager(
            file("consumerFilter.json"), clock, bloom, lambda: config.filter_data_clean_time_span
        ),
        isolated=IsolatedGroups(
            file("isolatedGroup.json"), node, modes, offsets, first_match_in(store)
        ),
        request_modes=MessageRequestModeManager(file("messageRequestMode.json"), config),
        order_info=ConsumerOrderInfo(file("consumerOrderInfo.json"), clock, events),
        schedules=ScheduleTable(file("schedules.json")),
        wishes=Wishes(file("groupWishes.json"), clock, lambda: config.isolate_keep_time),
    )
    return tables, modes


def _deliver(store: MessageStore, topics: TopicConfigManager) -> Deliver:
    """Return what stores delayed messages when they are due."""

    def deliver(topic: str, queue_id: int, *what: Any) -> Appended:
        return store.append(topic, topics.queue_now(topic, queue_id), *what)

    return deliver


def _put_ways(
    node: Node, tables: Tables, delay: DelayService, timer: TimerService
) -> tuple[DelayService, TimerAppend | None]:
    """Return the delay level service and, if enabled, the timer: the paths of messages for a later time."""
    config = node.config
    if not config.timer_wheel_enable:
        return delay, None
    way = TimerAppend(
        timer,
        lambda: config.timer_max_delay_sec * 1000,
        lambda: tables.topics.create_internal(TIMER_TOPIC, 1),
    )
    return delay, way


def _messages(
    node: Node,
    tables: Tables,
    consumers: ConsumerManager,
    store: MessageStore,
    ways: tuple[DelayService, TimerAppend | None],
    is_undecided: Callable[[Record], bool],
) -> Messages:
    config = node.config

    def totals() -> Totals:
        return Totals(
            store.appends.put_count,
            store.reads.get_found_count,
            store.reads.get_miss_count,
            store.reads.get_transferred_count,
        )

    replicas = _replicas(node, store)
    stats = BrokerStats(node.clock, config.broker_cluster_name, totals)
    deliveries = DeliveryRecord(
        os.path.join(store.config.store_path_root_dir, "deliveries"),
        node.clock,
        consumers,
        Surroundings(node, tables.offsets, tables.isolated.groups, tables.wishes, store),
        tables.offsets.starts,
    )
    return Messages(
        store=store,
        stats=stats,
        put=InternalAppend(store, ways[0], stats, node.clock, ways[1], tables.topics.queue_now),
        deliveries=deliveries,
        reach=PageCache(store),
        durability=Durability(store, replicas),
        once=SendOnce(node, tables.topics, store, is_undecided),
        lite=LiteTopics(node.config, store, tables.topics.lite),
    )


def _replication(
    node: Node,
    tables: Tables,
    messages: Messages,
    copied: CopiedState,
    load_anew: Callable[[], None],
) -> Replication:
    if node.config.enable_controller_mode:
        # Loaded under a controller only: it would add to the time of every start.
        from pocketmq.broker.election.replication import ElectedReplication

        return ElectedReplication(node, tables, messages, copied, load_anew)
    return Replication(node, tables, messages, copied, load_anew)


def _replicas(node: Node, store: MessageStore) -> ReplicaWaits:
    """Return the waits for slaves: as many as the settings say, or those that the controller knows."""
    config = node.config
    if not config.enable_controller_mode:
        slaves = Slaves(config, store, lambda: node.role.leads)
        return ReplicaWaits(config, node.clock, slaves, node.events.slaves_awaited)
    from pocketmq.broker.election.in_sync import InSync
    from pocketmq.broker.election.switch_slaves import SetReplicas, SwitchSlaves

    switched = SwitchSlaves(config, store, lambda: node.role.leads, InSync(config))
    return SetReplicas(config, node.clock, switched, node.events.slaves_awaited)


def _guard(
    node: Node,
    tables: Tables,
    consumers: ConsumerManager,
    modes: GroupModes,
    deliveries: DeliveryRecord,
) -> GroupGuard:
    def queue_count(topic: str) -> int:
        """Return how many queues of a topic can be read here; 0 if the topic does not exist."""
        found = tables.topics.get(topic)
        return 0 if found is None else found.read_queues

    return GroupGuard(
        node.clock,
        consumers,
        queue_count,
        grace_ms=lambda: node.config.group_guard_grace_time,
        is_watched=lambda group: modes.mode(group) is GroupMode.COMPATIBLE,
        holders=deliveries.holders,
    )
