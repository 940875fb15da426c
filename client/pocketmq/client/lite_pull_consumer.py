"""LitePullConsumer: messages on request, fetched ahead in the background.

    async with LitePullConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA")
        while True:
            for message in await consumer.poll():
                ...

Source: DefaultLitePullConsumer, RocketMQ 4.9.8.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from pocketmq.client import instances
from pocketmq.client.allocate import AllocateStrategy, averagely
from pocketmq.client.config import ClientConfig, ClientOptions, own_instance_name
from pocketmq.client.consumer_member import MemberSettings
from pocketmq.client.errors import CallerError, NotRunning
from pocketmq.client.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.client.lite_pull_member import LitePullMember, LiteSettings
from pocketmq.client.namespace import check_group, check_topic, with_namespace, without_namespace
from pocketmq.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from pocketmq.client.producer import replace_topic
from pocketmq.client.push_consumer import QueuesChanged
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.subscription import ALL, TAG, build_subscription

log = logging.getLogger(__name__)


class SubscribeAndAssign(CallerError):
    """A lite pull consumer either subscribes topics or is assigned queues."""


class LitePullConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of LitePullConsumer, for classes that hand them on."""

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int | None
    auto_commit: bool
    auto_commit_interval_ms: int
    pull_batch_size: int
    pull_threshold_count: int
    pull_threshold_mib: int
    pull_threshold_count_for_all: int
    max_span: int
    strategy: AllocateStrategy
    on_queues_changed: QueuesChanged | None
    offset_folder: Path | None


class LitePullConsumer:
    """Messages when the caller asks; start it by `async with`, or by start() and shutdown().

    subscribe() shares the queues with the other members of the group, assign() takes the ones given.

    Args: auto_commit: what poll() has given counts as consumed at the next poll() after
    auto_commit_interval_ms, and when the `async with` is left without an exception. pull_batch_size:
    messages a fetch. pull_threshold_*: how much is fetched ahead. name_server and further options: see
    ClientOptions.
    """

    def __init__(
        self,
        group: str,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        pull_batch_size: int = 32,
        pull_threshold_count: int = 1_000,
        pull_threshold_mib: int = 100,
        pull_threshold_count_for_all: int = 10_000,
        max_span: int = 2_000,
        strategy: AllocateStrategy = averagely,
        on_queues_changed: QueuesChanged | None = None,
        offset_folder: Path | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self.config = ClientConfig.of(options)
        self.group = check_group(group)
        self.message_model = message_model
        self._member_settings = MemberSettings(
            group=with_namespace(self.config.namespace, group),
            consume_type=ConsumeType.PULL,
            message_model=message_model,
            consume_from_where=consume_from_where,
            consume_timestamp_ms=consume_timestamp_ms,
            strategy=strategy,
        )
        self._settings = LiteSettings(
            namespace=self.config.namespace,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            pull_batch_size=pull_batch_size,
            pull_threshold_count=pull_threshold_count,
            pull_threshold_mib=pull_threshold_mib,
            pull_threshold_count_for_all=pull_threshold_count_for_all,
            max_span=max_span,
        )
        clustering = message_model is MessageModel.CLUSTERING
        self._client_id = self.config.client_id(own_instance_name() if clustering else "DEFAULT")
        self._on_queues_changed = on_queues_changed
        self._offset_folder = offset_folder
        self._subscriptions: dict[str, tuple[str, str]] = {}
        self._assignment: set[MessageQueue] = set()
        self._assign_expressions: dict[str, str] = {}
        self._member: LitePullMember | None = None

    @property
    def client_id(self) -> str:
        """Who this consumer is at the brokers."""
        return self._client_id

    # ------------------------------------------------------------ subscribe or assign

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Share the topic's queues with the group. Raises: IllegalTopic, SubscribeAndAssign."""
        if self._assignment:
            raise SubscribeAndAssign("this consumer was assigned queues: make another to subscribe")
        inner = self._inner_topic(check_topic(topic))
        build_subscription(inner, expression, expression_type)
        self._subscriptions[inner] = (expression, expression_type)
        if self._member is not None:
            self._member.subscribe_now(inner, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        inner = self._inner_topic(topic)
        self._subscriptions.pop(inner, None)
        if self._member is not None:
            self._member.unsubscribe(inner)
            self._member.instance.rebalance_now()

    def assign(self, queues: Iterable[MessageQueue], expression: str = ALL) -> None:
        """Take exactly these queues. Raises: SubscribeAndAssign.

        expression: tags that the messages must have, for the topics of these queues.
        """
        if self._subscriptions:
            raise SubscribeAndAssign("this consumer has subscribed topics: make another to assign")
        self._assignment = {self._inner(queue) for queue in queues}
        for queue in self._assignment:
            self._assign_expressions[queue.topic] = expression
        if self._member is not None:
            self._member.assign_expressions = self._assign_expressions
            self._member.assign(self._assignment)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Join the group. Raises: GroupInUse, InstanceConflict, SubscriptionIllegal."""
        if self._member is not None:
            raise NotRunning(f"consumer {self.group!r} is started already")
        instance = await instances.acquire(self._client_id, self.config)
        try:
            offsets: OffsetStore
            if self.message_model is MessageModel.BROADCASTING:
                offsets = LocalFileOffsetStore(
                    self._client_id, self._member_settings.group, self._offset_folder
                )
            else:
                offsets = RemoteBrokerOffsetStore(instance, self._member_settings.group)
            await offsets.load()
            member = LitePullMember(self._member_settings, self._settings, instance, offsets)
            member.on_queues_changed = self._queues_changed
            for topic, (expression, expression_type) in self._subscriptions.items():
                member.subscribe(topic, expression, expression_type)
            await member.start()
        except BaseException:
            await instances.release(instance)
            raise
        self._member = member
        if self._assignment:
            member.assign_expressions = self._assign_expressions
            member.assign(self._assignment)

    async def shutdown(self, *, commit_polled: bool = True) -> None:
        """Commit, unregister. commit_polled: with auto_commit, what poll() gave last counts as done."""
        member, self._member = self._member, None
        if member is None:
            return
        await member.shutdown(commit_polled=commit_polled)
        await instances.release(member.instance)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown(commit_polled=error is None)

    def _running(self) -> LitePullMember:
        if self._member is None:
            raise NotRunning(
                f"consumer {self.group!r} is not started: use `async with LitePullConsumer(...)`, or start()"
            )
        return self._member

    # ------------------------------------------------------------ messages and offsets

    async def poll(self, timeout_ms: int = 5_000) -> list[MessageExt]:
        """The messages fetched next, of one queue, in order; [] when none came in time."""
        return await self._running().poll(timeout_ms)

    async def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Store offsets at the broker: those given, else of all that poll() has given until now."""
        inner = None
        if offsets is not None:
            inner = {self._inner(queue): offset for queue, offset in offsets.items()}
        await self._running().commit(inner)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset; None if absent."""
        return await self._running().committed(self._inner(queue))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self._shown(queue) for queue in self._running().assigned)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from that offset. Raises: NotAssigned."""
        self._running().seek(self._inner(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on from the queue's first message."""
        self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on from what comes next."""
        self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch nothing of these queues until resume()."""
        for queue in queues:
            self._running().of(self._inner(queue)).paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._running().of(self._inner(queue)).paused = False

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read. Raises: NoRoute."""
        inner = self._inner_topic(topic)
        route = await self._running().instance.fetch_route(inner)
        return [self._shown(queue) for queue in route.subscribe_queues(inner)]

    async def min_offset(self, queue: MessageQueue) -> int:
        instance = self._running().instance
        inner = self._inner(queue)
        return await instance.api.min_offset(await instance.queue_address(inner), inner)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One behind the queue's last message."""
        instance = self._running().instance
        inner = self._inner(queue)
        return await instance.api.max_offset(await instance.queue_address(inner), inner)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after the time, ms since 1970."""
        instance = self._running().instance
        inner = self._inner(queue)
        address = await instance.queue_address(inner)
        return await instance.api.search_offset(address, inner, timestamp_ms)

    # ------------------------------------------------------------ names

    def _inner_topic(self, topic: str) -> str:
        return with_namespace(self.config.namespace, topic)

    def _inner(self, queue: MessageQueue) -> MessageQueue:
        return replace_topic(queue, self._inner_topic(queue.topic))

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return replace_topic(queue, without_namespace(self.config.namespace, queue.topic))

    def _queues_changed(
        self, topic: str, all_queues: list[MessageQueue], own: list[MessageQueue]
    ) -> None:
        if self._on_queues_changed is not None:
            self._on_queues_changed(
                without_namespace(self.config.namespace, topic),
                [self._shown(queue) for queue in all_queues],
                [self._shown(queue) for queue in own],
            )
