"""PullConsumer: explicit pulls: the caller chooses queue and offset of every pull.

    async with PullConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("TopicTest"):
            result = await consumer.pull(queue, await consumer.committed(queue) or 0)
            ...
            await consumer.commit(queue, result.next_begin_offset)

Source: DefaultMQPullConsumer, RocketMQ 4.9.7.
"""

from operator import attrgetter
from typing import TYPE_CHECKING

from pocketmq.client.consume.consumer_member import ConsumerMember
from pocketmq.client.consume.lite_pull_member import pull_fields
from pocketmq.client.consume.redelivery import RECONSUME_TIMES_MAX, SEND_BACK_TIMEOUT_MS
from pocketmq.client.group_client import ReadingConsumer
from pocketmq.client.network.namespace import with_namespace, without_namespace
from pocketmq.client.offset_store import RemoteBrokerOffsetStore
from pocketmq.client.options import MemberOptions, takes
from pocketmq.client.pull.decode import decode_pulled, filter_by_tags
from pocketmq.client.pull.pull_result import PullResult, PullStatus
from pocketmq.client.tracing.switch import receive_spans
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.subscription import ALL, TAG, SubscriptionData, build_subscription
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import PullSysFlag

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance
    from pocketmq.client.tracing.otel import ReceiveSpans


class _Member(ConsumerMember[MemberOptions]):
    """Registered at the brokers, without queues of its own."""

    async def do_rebalance(self) -> None:
        pass

    async def persist_offsets(self) -> None:
        pass


class PullConsumer(ReadingConsumer[MemberOptions, _Member]):
    """Pulls from the offset that the caller names. Options: see ClientOptions."""

    @takes(MemberOptions)
    def __init__(self, options: MemberOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._spans: ReceiveSpans | None = None

    async def _join(self, instance: "MQClientInstance") -> _Member:
        self._spans = receive_spans(self.config.otel, self.group)
        offsets = RemoteBrokerOffsetStore(instance, self.config.inner_group)
        member = _Member(self.config, instance, offsets)
        instance.register_consumer(member)
        return member

    async def _leave(self, member: _Member) -> None:
        await member.instance.unregister_consumer(member.group)

    # ------------------------------------------------------------ pulling

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
        """Pull messages of a queue from an offset on: at most count_max, and what a broker returns at once.

        wait_ms: how long the broker may hold the request while there is nothing new.
        Raises: IllegalArgument, BrokerRefused, Unreachable, AnswerTimeout.
        """
        if offset < 0 or count_max < 1:
            raise IllegalArgument("a pull needs an offset of at least 0 and a count of at least 1")
        subscription = build_subscription(
            self._inner_topic(queue.topic), expression, expression_type, self.config.clock.now_ms()
        )
        work = self._pull(queue, offset, subscription, count_max, wait_ms)
        if self._spans is None:
            return await work
        return await self._spans.receiving(work, attrgetter("messages"))

    async def _pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        count_max: int,
        wait_ms: int,
    ) -> PullResult:
        instance = self._running().instance
        inner = self._inner(queue)
        flag = PullSysFlag.SUBSCRIPTION
        if wait_ms:
            flag |= PullSysFlag.SUSPEND
        fields = pull_fields(
            self.config.inner_group, inner, subscription, offset, count_max, flag, wait_ms
        )
        address = await instance.queue_address(inner)
        timeout = self.config.request_timeout_ms + wait_ms
        result, body = await instance.api.pull(address, fields, timeout)
        if result.status is PullStatus.FOUND:
            messages = decode_pulled(result, body, queue.broker_name)
            result.messages = filter_by_tags(messages, subscription)
            for message in result.messages:
                message.topic = without_namespace(self.config.namespace, message.topic)
        return result

    async def send_back(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have the message redelivered to the group, through its retry topic. Raises: BrokerRefused, ..."""
        instance = self._running().instance
        topic = with_namespace(self.config.namespace, message.topic)
        address = await instance.master_address(topic, message.broker_name)
        await instance.api.send_message_back(
            address,
            message,
            self.config.inner_group,
            delay_level,
            RECONSUME_TIMES_MAX,
            SEND_BACK_TIMEOUT_MS,
        )

    # ------------------------------------------------------------ offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset at the broker; None if absent."""
        return await self._running().instance.query_offset(
            self.config.inner_group, self._inner(queue)
        )

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the next offset to read at the broker."""
        instance, group = self._running().instance, self.config.inner_group
        await instance.update_offset(group, self._inner(queue), offset)
        # A connection is served in order: when this is answered, the commit is done.
        await instance.query_offset(group, self._inner(queue))
