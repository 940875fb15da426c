"""PushConsumer: gives the messages of a group to a listener (S32, S34).

    async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        ...
        return ConsumeResult.SUCCESS

    async with PushConsumer("my_group", listener=on_messages, name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA || tagB")
        await consumer.run_until_signal()

Source: DefaultMQPushConsumer, RocketMQ 4.9.8.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from pocketmq.client import instances
from pocketmq.client.allocate import AllocateStrategy, averagely
from pocketmq.client.config import ClientConfig, ClientOptions, own_instance_name
from pocketmq.client.consume import Listener
from pocketmq.client.consumer_member import MemberSettings
from pocketmq.client.errors import NotRunning
from pocketmq.client.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.client.namespace import check_group, check_topic, with_namespace, without_namespace
from pocketmq.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from pocketmq.client.producer import replace_topic
from pocketmq.client.push_member import FilterHook, PushMember, PushSettings
from pocketmq.client.signals import wait_for_signal
from pocketmq.client.trace_dispatcher import TraceDispatcher
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.message import MessageQueue
from pocketmq.remoting.names import retry_topic
from pocketmq.remoting.subscription import ALL, TAG, build_subscription

log = logging.getLogger(__name__)

QueuesChanged = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""on_queues_changed(topic, all queues, our queues)."""


class PushConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of PushConsumer, for classes that hand them on."""

    orderly: bool
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int | None
    concurrency: int
    consume_batch_size: int
    pull_batch_size: int
    pull_interval_ms: int
    pull_threshold_count: int
    pull_threshold_mib: int
    pull_threshold_count_for_topic: int | None
    pull_threshold_mib_for_topic: int | None
    max_span: int
    max_reconsume_times: int
    consume_timeout_ms: int
    suspend_ms: int
    post_subscription_when_pull: bool
    strategy: AllocateStrategy
    filter_hook: FilterHook | None
    on_queues_changed: QueuesChanged | None
    trace: bool
    trace_topic: str | None
    offset_folder: Path | None
    drain_timeout_ms: int


class PushConsumer:
    """A member of a consumer group; start it by `async with`, or by start() and shutdown().

    Args: group shares the messages (CLUSTERING) or each member gets all (BROADCASTING); all members must
    subscribe the same. listener: a plain function (called in threads) or a coroutine function. orderly:
    the messages of a queue one after the other. concurrency: listener calls at the same time.
    consume_batch_size: messages a call at most. consume_from_where: where a new group begins;
    consume_timestamp_ms: that place for TIMESTAMP, ms since 1970 (default: half an hour ago).
    pull_threshold_*: how much is cached, for each queue or each topic. max_span: how far the offsets of one
    queue's cached messages may lie apart. max_reconsume_times: failures before a dead letter; -1 is the
    broker's 16 (orderly: without end). consume_timeout_ms: after that a message is given back while its
    listener is still at it. post_subscription_when_pull: send the expression with each pull, so that the
    broker filters by ours and not by the group's. drain_timeout_ms: how long shutdown() waits for
    listeners. offset_folder: where BROADCASTING keeps its offsets (default ~/.rocketmq_offsets).
    name_server and further options: see ClientOptions.
    """

    def __init__(
        self,
        group: str,
        *,
        listener: Listener,
        orderly: bool = False,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        concurrency: int = 20,
        consume_batch_size: int = 1,
        pull_batch_size: int = 32,
        pull_interval_ms: int = 0,
        pull_threshold_count: int = 1_000,
        pull_threshold_mib: int = 100,
        pull_threshold_count_for_topic: int | None = None,
        pull_threshold_mib_for_topic: int | None = None,
        max_span: int = 2_000,
        max_reconsume_times: int = -1,
        consume_timeout_ms: int = 15 * 60_000,
        suspend_ms: int = 1_000,
        post_subscription_when_pull: bool = False,
        strategy: AllocateStrategy = averagely,
        filter_hook: FilterHook | None = None,
        on_queues_changed: QueuesChanged | None = None,
        trace: bool = False,
        trace_topic: str | None = None,
        offset_folder: Path | None = None,
        drain_timeout_ms: int = 30_000,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self.config = ClientConfig.of(options)
        self.group = check_group(group)
        self.message_model = message_model
        _check_ranges(
            concurrency=(concurrency, 1, 1_000),
            consume_batch_size=(consume_batch_size, 1, 1_024),
            pull_batch_size=(pull_batch_size, 1, 1_024),
            pull_interval_ms=(pull_interval_ms, 0, 65_535),
            pull_threshold_count=(pull_threshold_count, 1, 65_535),
            pull_threshold_mib=(pull_threshold_mib, 1, 1_024),
            max_span=(max_span, 1, 65_535),
        )
        clustering = message_model is MessageModel.CLUSTERING
        self._member_settings = MemberSettings(
            group=with_namespace(self.config.namespace, group),
            consume_type=ConsumeType.PUSH,
            message_model=message_model,
            consume_from_where=consume_from_where,
            consume_timestamp_ms=consume_timestamp_ms,
            strategy=strategy,
            orderly=orderly,
            subscribe_retry_topic=clustering,
        )
        self._settings = PushSettings(
            listener=listener,
            namespace=self.config.namespace,
            concurrency=concurrency,
            consume_batch_size=consume_batch_size,
            pull_batch_size=pull_batch_size,
            pull_interval_ms=pull_interval_ms,
            pull_threshold_count=pull_threshold_count,
            pull_threshold_mib=pull_threshold_mib,
            pull_threshold_count_for_topic=pull_threshold_count_for_topic,
            pull_threshold_mib_for_topic=pull_threshold_mib_for_topic,
            max_span=max_span,
            max_reconsume_times=max_reconsume_times,
            consume_timeout_ms=consume_timeout_ms,
            suspend_ms=suspend_ms,
            post_subscription_when_pull=post_subscription_when_pull,
            filter_hook=filter_hook,
            drain_timeout_ms=drain_timeout_ms,
        )
        # A broadcasting consumer finds its offset file again by its client id, so that stays the same.
        instance_name = own_instance_name() if clustering else "DEFAULT"
        self._client_id = self.config.client_id(instance_name)
        self._offset_folder = offset_folder
        self._on_queues_changed = on_queues_changed
        self._trace = trace
        self._trace_topic = trace_topic
        self._tracer: TraceDispatcher | None = None
        self._subscriptions: dict[str, tuple[str, str]] = {}
        self._member: PushMember | None = None

    @property
    def client_id(self) -> str:
        """Who this consumer is at the brokers."""
        return self._client_id

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Get messages of a topic: all, those with one of the tags `A || B`, or those of a SQL92 condition.

        May be called before and after start(); afterwards brokers are told at once. A SQL92 text is checked
        by a broker in start(). Raises: IllegalTopic, IllegalArgument.
        """
        inner = with_namespace(self.config.namespace, check_topic(topic))
        build_subscription(inner, expression, expression_type)  # raises where it is wrong
        self._subscriptions[inner] = (expression, expression_type)
        if self._member is not None:
            self._member.subscribe_now(inner, expression, expression_type)

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of the topic; its queues are given up at the next rebalance."""
        inner = with_namespace(self.config.namespace, topic)
        self._subscriptions.pop(inner, None)
        if self._member is not None:
            self._member.unsubscribe(inner)
            self._member.instance.rebalance_now()

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Join the group: routes, heartbeat, then the first rebalance.

        Raises: GroupInUse, InstanceConflict, SubscriptionIllegal (SQL92), OffsetFileBroken.
        """
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
            if self._trace:
                self._tracer = TraceDispatcher(
                    self.group, "CONSUME", self.config, trace_topic=self._trace_topic
                )
                await self._tracer.start()
            member = PushMember(
                self._member_settings, self._settings, instance, offsets, self._tracer
            )
            member.on_queues_changed = self._queues_changed
            if self._member_settings.subscribe_retry_topic:
                member.subscribe(retry_topic(self._member_settings.group), ALL, TAG)
            for topic, (expression, expression_type) in self._subscriptions.items():
                member.subscribe(topic, expression, expression_type)
            await member.start()
        except BaseException:
            if self._tracer is not None:
                await self._tracer.shutdown()
                self._tracer = None
            await instances.release(instance)
            raise
        self._member = member
        log.info("consumer started group=%s client=%s", self.group, self._client_id)

    async def shutdown(self) -> None:
        """Stop pulling, let running listeners end, commit, unregister. May be called twice."""
        member, self._member = self._member, None
        if member is None:
            return
        await member.shutdown()
        if self._tracer is not None:
            await self._tracer.shutdown()
            self._tracer = None
        await instances.release(member.instance)
        log.info("consumer shut down group=%s client=%s", self.group, self._client_id)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    async def run_until_signal(self) -> None:
        """Wait for SIGTERM or SIGINT; leaving the `async with` then drains and unregisters."""
        await wait_for_signal()

    # ------------------------------------------------------------ while it runs

    def _running(self) -> PushMember:
        if self._member is None:
            raise NotRunning(
                f"consumer {self.group!r} is not started: use `async with PushConsumer(...)`, or start()"
            )
        return self._member

    def suspend(self) -> None:
        """Pull nothing and rebalance nothing until resume(); what is cached is still consumed."""
        self._running().paused = True

    def resume(self) -> None:
        """Go on after suspend()."""
        member = self._running()
        member.paused = False
        member.instance.rebalance_now()

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the retry topic among them."""
        namespace = self.config.namespace
        return sorted(
            replace_topic(queue, without_namespace(namespace, queue.topic))
            for queue in self._running().owned_queues()
        )

    def committed(self, queue: MessageQueue) -> int | None:
        """The next offset to read of a queue as it would be committed now; None: nothing consumed."""
        inner = with_namespace(self.config.namespace, queue.topic)
        return self._running().offsets.table.get(replace_topic(queue, inner))

    async def persist_offsets(self) -> None:
        """Commit now instead of at the next turn."""
        await self._running().persist_offsets()

    def _queues_changed(
        self, topic: str, all_queues: list[MessageQueue], own: list[MessageQueue]
    ) -> None:
        if self._on_queues_changed is not None:
            self._on_queues_changed(
                without_namespace(self.config.namespace, topic), all_queues, own
            )


def _check_ranges(**values: tuple[int, int, int]) -> None:
    for name, (value, low, high) in values.items():
        if not low <= value <= high:
            raise IllegalArgument(f"{name} must be from {low} to {high}, not {value}")
