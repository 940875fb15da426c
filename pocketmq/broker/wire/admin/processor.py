"""admin_handlers: composes the administration half of a broker's table of handlers."""

from pocketmq.broker.acts.tables import GroupActs, TopicActs
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.admin.access import AdminAccessProcessor
from pocketmq.broker.wire.admin.client_call import AdminClientCallProcessor
from pocketmq.broker.wire.admin.config import AdminConfigProcessor
from pocketmq.broker.wire.admin.connection import AdminConnectionProcessor
from pocketmq.broker.wire.admin.group import AdminGroupProcessor
from pocketmq.broker.wire.admin.offset import AdminOffsetProcessor
from pocketmq.broker.wire.admin.schedules import schedule_handlers
from pocketmq.broker.wire.admin.stats import AdminStatsProcessor
from pocketmq.broker.wire.admin.store import AdminStoreProcessor
from pocketmq.broker.wire.admin.topic import AdminTopicProcessor
from pocketmq.broker.wire.admin.transaction import AdminTransactionProcessor
from pocketmq.broker.wire.admin.users import user_handlers
from pocketmq.broker.wire.lite.info import AdminLiteProcessor
from pocketmq.broker.wire.query import QueryMessageProcessor
from pocketmq.remoting.transport.connection import Handler


def admin_handlers(parts: Parts) -> list[dict[int, Handler]]:
    """Return the handlers by request code, one table per subject."""
    node, tables, members, messages = parts.node, parts.tables, parts.members, parts.messages
    config, store, stats = node.config, messages.store, messages.stats
    delay = parts.services.delay

    def delay_offsets() -> dict[int, int]:
        return delay.offsets

    return [
        QueryMessageProcessor(store).handlers(),
        AdminTopicProcessor(
            config, TopicActs(tables, messages), tables.topics, store, stats
        ).handlers(),
        AdminGroupProcessor(GroupActs(node, tables, messages), tables.groups).handlers(),
        AdminConnectionProcessor(
            members.consumers, members.producers, tables.offsets, node.address
        ).handlers(),
        AdminOffsetProcessor(
            node, tables, members.consumers, messages, delay_offsets=delay_offsets
        ).handlers(),
        AdminClientCallProcessor(node, tables, members.consumers, store).handlers(),
        AdminStoreProcessor(store, tables.topics, members.consumers).handlers(),
        AdminStatsProcessor(
            node,
            store,
            stats,
            parts.services,
            tables.offsets.consumed,
            delay_offsets=delay_offsets,
        ).handlers(),
        AdminTransactionProcessor(store, tables.topics, parts.services.half).handlers(),
        AdminConfigProcessor(node, store.config, tables.changed).handlers(),
        AdminAccessProcessor(node).handlers(),
        user_handlers(node),
        schedule_handlers(parts),
        AdminLiteProcessor(parts).handlers(),
    ]
