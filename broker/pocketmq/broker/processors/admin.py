"""admin_handlers: the administration half of a broker's table of handlers, composed."""

from collections.abc import Callable

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.consumer_manager import ConsumerManager
from pocketmq.broker.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.message_put import MessagePut
from pocketmq.broker.processors.admin_client_call import AdminClientCallProcessor
from pocketmq.broker.processors.admin_config import AdminConfigProcessor
from pocketmq.broker.processors.admin_connection import AdminConnectionProcessor
from pocketmq.broker.processors.admin_group import AdminGroupProcessor
from pocketmq.broker.processors.admin_offset import AdminOffsetProcessor
from pocketmq.broker.processors.admin_stats import AdminStatsProcessor
from pocketmq.broker.processors.admin_store import AdminStoreProcessor
from pocketmq.broker.processors.admin_topic import AdminTopicProcessor
from pocketmq.broker.processors.admin_transaction import AdminTransactionProcessor
from pocketmq.broker.processors.query import QueryMessageProcessor
from pocketmq.broker.producer_manager import ProducerManager
from pocketmq.broker.stats import BrokerStats
from pocketmq.broker.subscription_group import SubscriptionGroupManager
from pocketmq.broker.topic_config import TopicConfigManager
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.connection import Handler
from pocketmq.store import DelayService, MessageStore
from pocketmq.store.timer import TimerService


def admin_handlers(
    config: BrokerConfig,
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    consumers: ConsumerManager,
    producers: ProducerManager,
    stats: BrokerStats,
    delay: DelayService,
    timer: TimerService,
    put: MessagePut,
    clock: Clock,
    *,
    address: str,
    pulled_to: Callable[[str, str, int], int],
    on_config_change: Callable[[set[str]], None],
    on_reset: Callable[[str, str, int, int], None],
) -> dict[int, Handler]:
    """Request code -> handler.

    address: what clients are told; pulled_to: see AdminOffsetProcessor; on_config_change: names of
    settings; on_reset: see AdminClientCallProcessor.
    """

    def delay_offsets() -> dict[int, int]:
        return delay.offsets

    now_ms = clock.now_ms
    table: dict[int, Handler] = {}
    for part in (
        QueryMessageProcessor(store).handlers(),
        AdminTopicProcessor(config, topics, offsets, store, stats).handlers(),
        AdminGroupProcessor(config, groups, offsets, stats).handlers(),
        AdminConnectionProcessor(consumers, producers, offsets, address).handlers(),
        AdminOffsetProcessor(
            config,
            store,
            topics,
            groups,
            offsets,
            consumers,
            stats,
            pulled_to=pulled_to,
            delay_offsets=delay_offsets,
            now_ms=now_ms,
            address=address,
        ).handlers(),
        AdminClientCallProcessor(
            config, store, topics, groups, offsets, consumers, on_reset=on_reset
        ).handlers(),
        AdminStoreProcessor(store, topics, consumers).handlers(),
        AdminStatsProcessor(
            config, store, stats, timer, delay_offsets=delay_offsets, now_ms=now_ms
        ).handlers(),
        AdminTransactionProcessor(store, topics, put).handlers(),
        AdminConfigProcessor(
            config, store.config, now_ms=now_ms, on_change=on_config_change
        ).handlers(),
    ):
        assert not table.keys() & part.keys(), "a code has two handlers"
        table.update(part)
    return table
