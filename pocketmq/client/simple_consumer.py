"""SimpleConsumer: messages by popping: the broker distributes them singly, and each is acknowledged.

    async with SimpleConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest")
        for message in await consumer.receive():
            ...
            await consumer.ack(message)

Queues have no owner, so more members than queues can share the work, and a slow message delays no other.
A message not acknowledged in time is redelivered, up to the group's retries. Brokers: PocketMQ, RocketMQ 5.x.
Source: SimpleConsumer of the 5.x SDKs; PopMessageProcessor, RocketMQ 5.3.3.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pocketmq.client.consume.simple_member import SimpleMember
from pocketmq.client.group_client import SubscribingConsumer
from pocketmq.client.network.namespace import with_namespace, without_namespace
from pocketmq.client.options import SimpleConsumerOptions, takes
from pocketmq.client.tracing.switch import receive_spans
from pocketmq.model.message import MessageExt
from pocketmq.remoting.errors import IllegalArgument

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance
    from pocketmq.client.tracing.otel import ReceiveSpans

_COUNT_MAX = 32


class SimpleConsumer(SubscribingConsumer[SimpleConsumerOptions, SimpleMember]):
    """Messages on request, acknowledged one by one. Options: see SimpleConsumerOptions."""

    @takes(SimpleConsumerOptions)
    def __init__(self, options: SimpleConsumerOptions) -> None:
        """Create it without connecting. Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)
        self._spans: ReceiveSpans | None = None

    async def _join(self, instance: "MQClientInstance") -> SimpleMember:
        self._spans = receive_spans(self.config.otel, self.group)
        return await self._start_member(SimpleMember(self.config, instance))

    async def _leave(self, member: SimpleMember) -> None:
        await member.shutdown()

    async def receive(
        self, count_max: int = 32, *, wait_ms: int = 15_000, invisible_ms: int | None = None
    ) -> list[MessageExt]:
        """Return some messages, at most count_max; [] if none came within wait_ms.

        invisible_ms: overrides the option of that name. Raises: IllegalArgument, NoRoute, BrokerRefused,
        Unreachable.
        """
        if not 1 <= count_max <= _COUNT_MAX:
            raise IllegalArgument(f"receive gives 1 to {_COUNT_MAX} messages, not {count_max}")
        work = self._receive(count_max, invisible_ms or self.config.invisible_ms, max(0, wait_ms))
        return await (work if self._spans is None else self._spans.receiving(work, list))

    async def _receive(self, count_max: int, invisible_ms: int, wait_ms: int) -> list[MessageExt]:
        found = await self._running().receive(count_max, invisible_ms, wait_ms)
        for message in found:
            message.topic = without_namespace(self.config.namespace, message.topic)
        return found

    async def available(self, *, wait_ms: int = 15_000) -> bool:
        """Return True as soon as there is something to receive, without taking it; False after wait_ms.

        Another member may take it before the next receive(). Raises: as receive().
        """
        return await self._running().available(max(0, wait_ms))

    async def ack(self, message: MessageExt) -> None:
        """Acknowledge the message, so it is not redelivered. Raises: BrokerRefused, AnswerTimeout, ..."""
        topic = with_namespace(self.config.namespace, message.topic)
        await self._settle("ack", message, self._running().ack(topic, message))

    async def renew(self, message: MessageExt, invisible_ms: int) -> None:
        """Redeliver the message after that time from now, unless it is acknowledged before; 0: at once.

        The message gets the new receipt. Raises: BrokerRefused, e.g. if it was redelivered already.
        """
        topic = with_namespace(self.config.namespace, message.topic)
        work = self._running().renew(topic, message, invisible_ms)
        # Only what ends this delivery is an answer.
        await (work if invisible_ms else self._settle("nack", message, work))

    async def dead_letter(self, message: MessageExt) -> None:
        """Move the message to the dead letters, whatever retries it has left. Raises: BrokerRefused, ..."""
        topic = with_namespace(self.config.namespace, message.topic)
        await self._settle("reject", message, self._running().dead_letter(topic, message))

    async def _settle(self, name: str, message: MessageExt, work: Awaitable[None]) -> None:
        await (work if self._spans is None else self._spans.settling(name, message, work))

    async def give_up(self, message: MessageExt) -> None:
        """With the option `renews`: renew no more, so the message is redelivered when its time is over."""
        await self._running().renewals.give_up(message)
