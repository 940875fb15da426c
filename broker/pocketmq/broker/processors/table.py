"""The table of handlers: each request code stands in the module that has its subject."""

from pocketmq.broker.parts import Parts
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.broker.processors.admin import admin_handlers
from pocketmq.broker.processors.client_manage import ClientManageProcessor
from pocketmq.broker.processors.consumer_manage import ConsumerManageProcessor
from pocketmq.broker.processors.group_doctor import GroupDoctorProcessor
from pocketmq.broker.processors.message_track import MessageTrackProcessor
from pocketmq.broker.processors.pop import PopMessageProcessor
from pocketmq.broker.processors.pop_ack import PopAckProcessor
from pocketmq.broker.processors.pop_assignment import PopAssignmentProcessor
from pocketmq.broker.processors.pull import PullMessageProcessor
from pocketmq.broker.processors.recall import RecallMessageProcessor
from pocketmq.broker.processors.reply import ReplyMessageProcessor
from pocketmq.broker.processors.send import SendMessageProcessor
from pocketmq.broker.processors.send_back import SendBackProcessor
from pocketmq.broker.processors.timer import TimerProcessor
from pocketmq.broker.processors.transaction import EndTransactionProcessor
from pocketmq.remoting.connection import Handler
from pocketmq.remoting.requests import Server, complete


def handlers(parts: Parts, send: SendMessageProcessor, routes: TopicRoutes) -> dict[int, Handler]:
    """Request code -> handler."""
    node, tables, members, messages = parts.node, parts.tables, parts.members, parts.messages
    services, events = parts.services, node.events
    config, store, put = node.config, messages.store, messages.put
    clients = ClientManageProcessor(node, tables, members)
    events.must_rebalance.to(clients.notify_members)
    # Topics that the short way of sending knows must be looked up again.
    events.topics_changed.to(send.forget_targets)
    events.settings_changed.to(send.forget_targets)
    table: dict[int, Handler] = {}
    for part in (
        send.handlers(),
        SendBackProcessor(node, tables, messages).handlers(),
        ReplyMessageProcessor(node, send, members.producers, put).handlers(),
        PullMessageProcessor(node, tables, members, messages, services.long_polling).handlers(),
        clients.handlers(),
        ConsumerManageProcessor(tables, members, messages).handlers(),
        PopMessageProcessor(node, tables, members, messages, services.pop).handlers(),
        PopAckProcessor(node, tables, messages, services.pop).handlers(),
        PopAssignmentProcessor(tables, members, routes).handlers(),
        MessageTrackProcessor(store, messages.deliveries, parts.tracks).handlers(),
        EndTransactionProcessor(config, store, put, services.half).handlers(),
        RecallMessageProcessor(config, tables.topics, put, node.clock.now_ms).handlers(),
        TimerProcessor(config, services.timer).handlers(),
        GroupDoctorProcessor(
            members.consumers, members.guard, members.modes, members.policies.describe
        ).handlers(),
        *admin_handlers(parts),
    ):
        assert not table.keys() & part.keys(), "a code has two handlers"
        table.update(part)
    return complete(Server.BROKER, table)
