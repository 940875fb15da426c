"""PushConsumer: delivers the messages of a group to a listener (S32, S34).

    async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        ...
        return ConsumeResult.SUCCESS

    async with PushConsumer("my_group", listener=on_messages, name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA || tagB")
        await consumer.run_until_signal()

Source: DefaultMQPushConsumer, RocketMQ 4.9.8.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pocketmq.client.argument_types import check_expression
from pocketmq.client.codecs import Codec
from pocketmq.client.consume.listener import ListenerHooks
from pocketmq.client.consume.push_member import PushMember
from pocketmq.client.consume.router import Handler, Router
from pocketmq.client.group_client import SharingConsumer
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.options import PushConsumerOptions, takes
from pocketmq.client.tracing.switch import consume_spans
from pocketmq.client.tracing.trace_dispatcher import ConsumeTrace, TraceDispatcher
from pocketmq.client.wait_for_signal import wait_for_signal
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import retry_topic
from pocketmq.model.subscription import ALL, TAG
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pocketmq.client.inbox import Inbox
    from pocketmq.client.network.instance import MQClientInstance


class PushConsumer(SharingConsumer[PushConsumerOptions, PushMember]):
    """A member of a consumer group; start it by `async with`, or by start() and shutdown().

    All members of a group must subscribe the same. Options: see PushConsumerOptions.
    """

    @takes(PushConsumerOptions)
    def __init__(self, options: PushConsumerOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._router = Router()
        self._tracer: TraceDispatcher | None = None

    def on(
        self,
        topic: str,
        expression: str = ALL,
        expression_type: str = TAG,
        *,
        codec: Codec[Any] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Subscribe, and have the decorated function called with the messages: see `router`.

        For a consumer without a listener, before it starts. Raises: IllegalTopic, IllegalArgument.
        """
        if self.config.listener is not None or self._member is not None:
            raise IllegalArgument(
                "add functions before the consumer starts, and only to one without a listener"
            )

        check_expression(expression, expression_type)

        def decorate(handler: Handler) -> Handler:
            asked = self._router.add(topic, expression, expression_type, handler, codec)
            self.subscribe(topic, *asked)
            return handler

        return decorate

    # ------------------------------------------------------------ life

    async def _join(self, instance: "MQClientInstance") -> PushMember:
        options = self.config
        listener = options.listener or self._router.listener()
        around: list[ListenerHooks] = []
        spans = consume_spans(options.otel, self.group)
        if spans is not None:
            around.append(spans)
        offsets = await self._offset_store(instance)
        try:
            if options.trace:
                from pocketmq.client.producer import Producer

                self._tracer = TraceDispatcher(
                    Producer, self.group, "CONSUME", options, trace_topic=options.trace_topic
                )
                await self._tracer.start()
                around.append(
                    ConsumeTrace(self._tracer, self.group, options.namespace, instance.clock)
                )
            member = PushMember(options, instance, offsets, listener, around)
            if self.message_model is MessageModel.CLUSTERING:
                member.subscribe(retry_topic(member.group), ALL, TAG)
            return await self._start_member(member)
        except BaseException:
            await self._end_trace()
            raise

    def _is_inside(self) -> bool:
        """Return True if this code runs inside a call of this consumer's listener."""
        member = self._member or self._left
        return member is not None and member.calls_this

    async def _leave(self, member: PushMember) -> None:
        try:
            await member.shutdown()
        finally:
            await self._end_trace()

    async def _end_trace(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            await tracer.shutdown()

    def once(self, connection: Any) -> "Inbox":
        """Return an inbox in a database: what is done inside `inbox.once(message)` is done once (inbox.py).

        connection: of a DB-API module or of SQLAlchemy. Raises: IllegalArgument, what the database raises.
        """
        from pocketmq.client.inbox import Inbox

        return Inbox(connection, self.group)

    async def run_until_signal(self) -> None:
        """Wait for SIGTERM or SIGINT; leaving the `with` block then drains and unregisters.

        Raises: IllegalArgument without a subscription.
        """
        self._check_subscribed()
        await wait_for_signal()

    def _check_subscribed(self) -> None:
        """Raises: IllegalArgument if this consumer would wait for nothing."""
        if not self._subscriptions:
            raise IllegalArgument(
                f"consumer {self.group!r} has no subscription: call subscribe(topic) first"
            )

    # ------------------------------------------------------------ while it runs

    def suspend(self) -> None:
        """Stop pulling and rebalancing until resume(); cached messages are still consumed."""
        self._running().paused = True

    def resume(self) -> None:
        """Continue after suspend()."""
        member = self._running()
        member.paused = False
        member.instance.rebalance_now()

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue as it would be committed now; None: nothing consumed."""
        return self._running().offsets.table.get(self._inner(queue))

    async def persist_offsets(self) -> None:
        """Commit now instead of at the next interval."""
        await self._running().persist_offsets()
