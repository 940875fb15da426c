"""The table of handlers: each request code is served by the module of its subject."""

from collections.abc import Callable, Set
from functools import cache
from typing import TYPE_CHECKING

from pocketmq.broker.acts.clients import ClientActs
from pocketmq.broker.acts.offsets import OffsetActs
from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.acts.pull import PullActs
from pocketmq.broker.acts.recall import RecallActs
from pocketmq.broker.acts.receipts import ReceiptActs
from pocketmq.broker.acts.reply import ReplyActs
from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.acts.send_back import SendBackActs
from pocketmq.broker.acts.transactions import TransactionActs
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.broker.services import Parts
from pocketmq.broker.wire.balance import balance_handlers
from pocketmq.broker.wire.client_manage import ClientManageProcessor
from pocketmq.broker.wire.consumer_manage import ConsumerManageProcessor
from pocketmq.broker.wire.group_doctor import GroupDoctorProcessor
from pocketmq.broker.wire.pop import PopMessageProcessor
from pocketmq.broker.wire.pop_ack import PopAckProcessor
from pocketmq.broker.wire.pop_assignment import PopAssignmentProcessor
from pocketmq.broker.wire.pull import PullMessageProcessor
from pocketmq.broker.wire.recall import RecallMessageProcessor
from pocketmq.broker.wire.replicas import ReplicasProcessor
from pocketmq.broker.wire.reply import ReplyMessageProcessor
from pocketmq.broker.wire.send_back import SendBackProcessor
from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.broker.wire.timer import TimerProcessor
from pocketmq.broker.wire.track import track_handlers
from pocketmq.broker.wire.transaction import EndTransactionProcessor
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import AnsweringServer, complete, promised
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Later, Reply, Steps

if TYPE_CHECKING:
    from pocketmq.broker.wire.lite.proxy import LiteProcessor


def handlers(
    parts: Parts, sends: SendActs, send: SendMessageProcessor, routes: TopicRoutes
) -> dict[int, Handler]:
    """Return the handlers by request code."""
    node, tables, members, messages = parts.node, parts.tables, parts.members, parts.messages
    services, events = parts.services, node.events
    config, put = node.config, messages.put
    clients = ClientActs(node, tables, members)
    offsets = OffsetActs(tables, members, messages, node.who)
    events.must_rebalance.to(clients.notify_members)
    # Topics that the short way of sending knows must be looked up again.
    events.topics_changed.to(send.parts.forget_topics)
    events.settings_changed.to(send.parts.take_settings)
    lite = _later_lite(parts)
    table: dict[int, Handler] = {}
    for part in (
        send.handlers(),
        SendBackProcessor(SendBackActs(node, tables, messages)).handlers(),
        ReplyMessageProcessor(ReplyActs(node, sends, members.producers, put), send).handlers(),
        PullMessageProcessor(
            config,
            PullActs(node, tables, members, messages, services.long_polling),
            messages.stats.latencies,
            node.clock,
        ).handlers(),
        ClientManageProcessor(clients).handlers(),
        ConsumerManageProcessor(clients, offsets).handlers(),
        PopMessageProcessor(PopActs(node, tables, members, messages, services.pop)).handlers(),
        PopAckProcessor(
            ReceiptActs(node, tables, messages, services.pop), messages.durability, lite
        ).handlers(),
        PopAssignmentProcessor(tables, members, routes).handlers(),
        track_handlers(parts),
        balance_handlers(parts),
        lite_handlers(lite),
        EndTransactionProcessor(
            TransactionActs(messages, services.half), messages.durability
        ).handlers(),
        RecallMessageProcessor(
            config, RecallActs(node, tables, messages), messages.durability
        ).handlers(),
        TimerProcessor(config, services.timer).handlers(),
        ReplicasProcessor(services.replication, services.pop, messages.deliveries).handlers(),
        GroupDoctorProcessor(
            members.consumers, members.guard, members.modes, members.policies.describe
        ).handlers(),
    ):
        assert not table.keys() & part.keys(), "a code has two handlers"
        table.update(part)
    table.update(_of_tools(parts, promised(AnsweringServer.BROKER) - table.keys()))
    return complete(AnsweringServer.BROKER, table)


def _later_lite(parts: Parts) -> Callable[[], "LiteProcessor"]:
    """Return the way to the requests of RocketMQ's proxy for lite topics: loaded with the first of them."""

    @cache
    def made() -> "LiteProcessor":
        from pocketmq.broker.wire.lite.proxy import LiteProcessor

        return LiteProcessor(parts)

    return made


def lite_handlers(lite: Callable[[], "LiteProcessor"]) -> dict[int, Handler]:
    """Return the handlers of these requests."""

    def handle(request: RemotingCommand, connection: Connection) -> Reply | Later | Steps:
        return lite().handlers()[request.code](request, connection)

    return dict.fromkeys((RequestCode.LITE_SUBSCRIPTION_CTL, RequestCode.POP_LITE_MESSAGE), handle)


def _of_tools(parts: Parts, codes: Set[int]) -> dict[int, Handler]:
    """Return the handlers of administration: loaded with a tool's first request, not at every start."""

    @cache
    def made() -> dict[int, Handler]:
        from pocketmq.broker.wire.admin.processor import admin_handlers

        table: dict[int, Handler] = {}
        for part in admin_handlers(parts):
            assert not table.keys() & part.keys(), "a code has two handlers"
            table.update(part)
        assert table.keys() == codes, f"rows, handlers differ: {table.keys() ^ codes}"
        return table

    def handle(request: RemotingCommand, connection: Connection) -> Reply | Later | Steps:
        return made()[request.code](request, connection)

    return dict.fromkeys(codes, handle)
