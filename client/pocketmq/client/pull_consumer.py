"""PullConsumer: pulls by hand: the caller chooses queue and offset of every pull.

    async with PullConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("TopicTest"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit(queue, result.next_begin_offset)

Source: DefaultMQPullConsumer, RocketMQ 4.9.7.
"""

from types import TracebackType
from typing import Self, Unpack

from pocketmq.client import instances
from pocketmq.client.allocate import averagely
from pocketmq.client.config import ClientConfig, ClientOptions, own_instance_name
from pocketmq.client.consumer_member import ConsumerMember, MemberSettings
from pocketmq.client.decode import complete, decode_messages, filter_by_tags
from pocketmq.client.errors import NotRunning
from pocketmq.client.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.client.lite_pull_member import pull_fields
from pocketmq.client.namespace import check_group, with_namespace, without_namespace
from pocketmq.client.offset_store import RemoteBrokerOffsetStore
from pocketmq.client.producer import replace_topic
from pocketmq.client.pull_result import PullResult, PullStatus
from pocketmq.client.push_member import RECONSUME_TIMES_MAX, SEND_BACK_TIMEOUT_MS
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.message import MessageExt, MessageQueue
from pocketmq.remoting.subscription import ALL, TAG, build_subscription


class _Member(ConsumerMember):
    """Known to the brokers, without queues of its own."""

    async def do_rebalance(self) -> None:
        pass

    async def persist_offsets(self) -> None:
        pass


class PullConsumer:
    """Pulls where the caller says. name_server and further options: see ClientOptions."""

    def __init__(self, group: str, **options: Unpack[ClientOptions]) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self.config = ClientConfig.of(options)
        self.group = check_group(group)
        self._inner_group = with_namespace(self.config.namespace, group)
        self._client_id = self.config.client_id(own_instance_name())
        self._member: _Member | None = None

    @property
    def client_id(self) -> str:
        """Who this consumer is at the brokers."""
        return self._client_id

    async def start(self) -> None:
        """Join the instance. Raises: GroupInUse, InstanceConflict."""
        if self._member is not None:
            raise NotRunning(f"consumer {self.group!r} is started already")
        instance = await instances.acquire(self._client_id, self.config)
        try:
            settings = MemberSettings(
                self._inner_group,
                ConsumeType.PULL,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.LAST_OFFSET,
                None,
                averagely,
            )
            offsets = RemoteBrokerOffsetStore(instance, self._inner_group)
            member = _Member(settings, instance, offsets)
            instance.register_consumer(member)
        except BaseException:
            await instances.release(instance)
            raise
        self._member = member

    async def shutdown(self) -> None:
        """Unregister. May be called twice."""
        member, self._member = self._member, None
        if member is None:
            return
        await member.instance.unregister_consumer(self._inner_group)
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
        await self.shutdown()

    def _running(self) -> _Member:
        if self._member is None:
            raise NotRunning(
                f"consumer {self.group!r} is not started: use `async with PullConsumer(...)`, or start()"
            )
        return self._member

    # ------------------------------------------------------------ pulling

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read. Raises: NoRoute."""
        inner = with_namespace(self.config.namespace, topic)
        route = await self._running().instance.fetch_route(inner)
        return [replace_topic(queue, topic) for queue in route.subscribe_queues(inner)]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = ALL,
        expression_type: str = TAG,
        *,
        count_max: int = 32,
        wait_ms: int = 0,
    ) -> PullResult:
        """Messages of a queue from an offset on; at most count_max, and as many as a broker gives at once.

        wait_ms: how long the broker may hold the request while there is nothing new.
        Raises: IllegalArgument, BrokerRefused, Unreachable, AnswerTimeout.
        """
        if offset < 0 or count_max < 1:
            raise IllegalArgument("a pull needs an offset from 0 on and a count from 1 on")
        instance = self._running().instance
        inner = self._inner(queue)
        subscription = build_subscription(
            inner.topic, expression, expression_type, self.config.clock.now_ms()
        )
        flag = PullSysFlag.SUBSCRIPTION
        if wait_ms:
            flag |= PullSysFlag.SUSPEND
        fields = pull_fields(
            self._inner_group, inner, subscription, offset, count_max, flag, wait_ms
        )
        address = await instance.queue_address(inner)
        timeout = self.config.request_timeout_ms + wait_ms
        result, body = await instance.api.pull(address, fields, timeout)
        if result.status is PullStatus.FOUND:
            messages = decode_messages(body, queue.broker_name, result.offset_delta)
            result.messages = filter_by_tags(messages, subscription)
            complete(result.messages, result.min_offset, result.max_offset)
            for message in result.messages:
                message.topic = without_namespace(self.config.namespace, message.topic)
        return result

    async def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have the group get the message again, by its retry topic. Raises: BrokerRefused, ..."""
        instance = self._running().instance
        topic = with_namespace(self.config.namespace, message.topic)
        address = await instance.master_address(topic, message.broker_name)
        await instance.api.send_message_back(
            address,
            message,
            self._inner_group,
            delay_level,
            RECONSUME_TIMES_MAX,
            SEND_BACK_TIMEOUT_MS,
        )

    # ------------------------------------------------------------ offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset at the broker; None if absent."""
        return await self._running().instance.query_offset(self._inner_group, self._inner(queue))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the next offset to read at the broker."""
        await self._running().instance.update_offset(
            self._inner_group, self._inner(queue), offset, oneway=False
        )

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

    def _inner(self, queue: MessageQueue) -> MessageQueue:
        return replace_topic(queue, with_namespace(self.config.namespace, queue.topic))
