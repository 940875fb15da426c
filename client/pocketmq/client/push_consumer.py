"""PushConsumer: gives the messages of a group to a listener (S32, S34).

    async def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        ...
        return ConsumeResult.SUCCESS

    async with PushConsumer("my_group", listener=on_messages, name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA || tagB")
        await consumer.run_until_signal()

Source: DefaultMQPushConsumer, RocketMQ 4.9.8.
"""

from typing import TYPE_CHECKING

from pocketmq.client.group_client import SharingConsumer
from pocketmq.client.heartbeat import MessageModel
from pocketmq.client.options import PushConsumerOptions, takes
from pocketmq.client.push_member import PushMember
from pocketmq.client.signals import wait_for_signal
from pocketmq.client.trace_dispatcher import TraceDispatcher
from pocketmq.remoting.message import MessageQueue
from pocketmq.remoting.names import retry_topic
from pocketmq.remoting.subscription import ALL, TAG

if TYPE_CHECKING:
    from pocketmq.client.instance import MQClientInstance


class PushConsumer(SharingConsumer[PushConsumerOptions, PushMember]):
    """A member of a consumer group; start it by `async with`, or by start() and shutdown().

    All members of a group must subscribe the same. Options: see PushConsumerOptions.
    """

    @takes(PushConsumerOptions)
    def __init__(self, options: PushConsumerOptions) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._tracer: TraceDispatcher | None = None

    # ------------------------------------------------------------ life

    async def _join(self, instance: "MQClientInstance") -> PushMember:
        options = self.config
        offsets = await self._offset_store(instance)
        try:
            if options.trace:
                self._tracer = TraceDispatcher(
                    self.group, "CONSUME", options, trace_topic=options.trace_topic
                )
                await self._tracer.start()
            member = PushMember(options, instance, offsets, self._tracer)
            if self.message_model is MessageModel.CLUSTERING:
                member.subscribe(retry_topic(member.group), ALL, TAG)
            return await self._start_member(member)
        except BaseException:
            await self._end_trace()
            raise

    async def _leave(self, member: PushMember) -> None:
        await member.shutdown()
        await self._end_trace()

    async def _end_trace(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            await tracer.shutdown()

    async def run_until_signal(self) -> None:
        """Wait for SIGTERM or SIGINT; leaving the `with` block then drains and unregisters."""
        await wait_for_signal()

    # ------------------------------------------------------------ while it runs

    def suspend(self) -> None:
        """Pull nothing and rebalance nothing until resume(); what is cached is still consumed."""
        self._running().paused = True

    def resume(self) -> None:
        """Go on after suspend()."""
        member = self._running()
        member.paused = False
        member.instance.rebalance_now()

    def committed(self, queue: MessageQueue) -> int | None:
        """The next offset to read of a queue as it would be committed now; None: nothing consumed."""
        return self._running().offsets.table.get(self._inner(queue))

    async def persist_offsets(self) -> None:
        """Commit now instead of at the next turn."""
        await self._running().persist_offsets()
