"""LitePullConsumer: messages on request, fetched ahead in the background.

    async with LitePullConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest", "tagA")
        while True:
            for message in await consumer.poll():
                ...

Source: DefaultLitePullConsumer, RocketMQ 4.9.8.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from pocketmq.client.argument_types import check_type
from pocketmq.client.consume.lite_pull_member import LitePullMember
from pocketmq.client.consume.portion import Portion
from pocketmq.client.errors import CallerError
from pocketmq.client.group_client import ReadingConsumer, SharingConsumer
from pocketmq.client.options import LitePullConsumerOptions, takes
from pocketmq.client.tracing.switch import receive_spans
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.model.subscription import ALL, TAG

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance
    from pocketmq.client.tracing.otel import ReceiveSpans


class SubscribeAndAssign(CallerError):
    """A lite pull consumer either subscribes to topics or is assigned queues, not both."""


class LitePullConsumer(
    SharingConsumer[LitePullConsumerOptions, LitePullMember],
    ReadingConsumer[LitePullConsumerOptions, LitePullMember],
):
    """Messages on request; start it by `async with`, or by start() and shutdown().

    subscribe() shares the queues with the other members of the group, assign() takes the given ones.
    Options: see LitePullConsumerOptions.
    """

    @takes(LitePullConsumerOptions)
    def __init__(self, options: LitePullConsumerOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._spans: ReceiveSpans | None = None
        self._assignment: set[MessageQueue] = set()
        self._assign_expressions: dict[str, str] = {}
        self._commit_polled = True

    # ------------------------------------------------------------ subscribe or assign

    def subscribe(self, topic: str, expression: str = ALL, expression_type: str = TAG) -> None:
        """Share the topic's queues with the group. Raises: IllegalTopic, SubscribeAndAssign."""
        if self._assignment:
            raise SubscribeAndAssign(
                "this consumer was assigned queues: create another one to subscribe"
            )
        super().subscribe(topic, expression, expression_type)

    def assign(self, queues: Iterable[MessageQueue], expression: str = ALL) -> None:
        """Read exactly these queues. Raises: SubscribeAndAssign.

        expression: tags that the messages must have, for the topics of these queues.
        """
        if self._subscriptions:
            raise SubscribeAndAssign(
                "this consumer has subscribed to topics: create another one to assign queues"
            )
        self._assignment = {self._inner(queue) for queue in queues}
        for queue in self._assignment:
            self._assign_expressions[queue.topic] = expression
        if self._member is not None:
            self._assign(self._member)

    def _assign(self, member: LitePullMember) -> None:
        member.assign_expressions = self._assign_expressions
        member.assign(self._assignment)

    # ------------------------------------------------------------ life

    async def _join(self, instance: "MQClientInstance") -> LitePullMember:
        self._spans = receive_spans(self.config.otel, self.group)
        offsets = await self._offset_store(instance)
        return await self._start_member(LitePullMember(self.config, instance, offsets))

    async def _joined(self, member: LitePullMember) -> None:
        await super()._joined(member)
        if self._assignment:
            self._assign(member)

    async def shutdown(self, *, commit_polled: bool = True) -> None:
        """Commit, unregister. commit_polled: with auto_commit, treat the messages of the last poll() as
        consumed.
        """
        self._commit_polled = commit_polled
        await super().shutdown()

    async def _leave(self, member: LitePullMember) -> None:
        await member.shutdown(commit_polled=self._commit_polled)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown(commit_polled=error is None)

    # ------------------------------------------------------------ messages and offsets

    async def poll(self, timeout_ms: int = 5_000) -> list[MessageExt]:
        """Return the messages fetched next, of one queue, in order; [] if none came in time."""
        check_type("timeout_ms", timeout_ms, int, float)
        work = self._running().poll(timeout_ms)
        return await (work if self._spans is None else self._spans.receiving(work, list))

    async def _fill(self, portion: Portion, timeout_ms: int) -> None:
        """Like poll(), for the blocking client, whose program takes the messages in another thread."""
        check_type("timeout_ms", timeout_ms, int, float)
        work = self._running().fill(portion, timeout_ms)
        if self._spans is not None:
            work = self._spans.receiving(work, lambda _: portion.messages)
        await work

    async def commit(self, offsets: dict[MessageQueue, int] | None = None) -> None:
        """Commit offsets at the broker: the given ones, else those of all messages returned by poll()."""
        inner = None
        if offsets is not None:
            inner = {self._inner(queue): offset for queue, offset in offsets.items()}
        await self._running().commit(inner)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset; None if absent."""
        return await self._running().committed(self._inner(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue from that offset. Raises: NotAssigned."""
        self._running().seek(self._inner(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue from the queue's first message."""
        self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the queue's last message."""
        self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from these queues until resume()."""
        for queue in queues:
            self._running().of(self._inner(queue)).paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._running().of(self._inner(queue)).paused = False
