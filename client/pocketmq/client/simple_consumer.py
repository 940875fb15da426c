"""SimpleConsumer: messages by popping: the broker shares them out one by one, and each is acknowledged.

    async with SimpleConsumer("my_group", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("TopicTest")
        for message in await consumer.receive():
            ...
            await consumer.ack(message)

No queue belongs to anybody, so more members than queues share the work, and a slow message holds up no other.
What is not acknowledged in time comes again, up to the group's retries. Brokers: PocketMQ, RocketMQ 5.x.
Source: SimpleConsumer of the 5.x SDKs; PopMessageProcessor, RocketMQ 5.3.3.
"""

from typing import TYPE_CHECKING

from pocketmq.client.group_client import SubscribingConsumer
from pocketmq.client.namespace import with_namespace, without_namespace
from pocketmq.client.options import SimpleConsumerOptions, takes
from pocketmq.client.simple_member import SimpleMember
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.message import MessageExt

if TYPE_CHECKING:
    from pocketmq.client.instance import MQClientInstance

_COUNT_MAX = 32


class SimpleConsumer(SubscribingConsumer[SimpleConsumerOptions, SimpleMember]):
    """Messages when the caller asks, done when the caller says so. Options: see SimpleConsumerOptions."""

    @takes(SimpleConsumerOptions)
    def __init__(self, options: SimpleConsumerOptions) -> None:
        """Raises: IllegalGroup, IllegalArgument."""
        self._set_up(options)

    async def _join(self, instance: "MQClientInstance") -> SimpleMember:
        return await self._start_member(SimpleMember(self.config, instance))

    async def _leave(self, member: SimpleMember) -> None:
        await member.shutdown()

    async def receive(
        self, count_max: int = 32, *, wait_ms: int = 15_000, invisible_ms: int | None = None
    ) -> list[MessageExt]:
        """Some messages, at most count_max; [] when none came within wait_ms.

        invisible_ms: instead of the option of that name. Raises: IllegalArgument, NoRoute, BrokerRefused,
        Unreachable.
        """
        if not 1 <= count_max <= _COUNT_MAX:
            raise IllegalArgument(f"receive gives 1 to {_COUNT_MAX} messages, not {count_max}")
        found = await self._running().receive(
            count_max, invisible_ms or self.config.invisible_ms, max(0, wait_ms)
        )
        for message in found:
            message.topic = without_namespace(self.config.namespace, message.topic)
        return found

    async def ack(self, message: MessageExt) -> None:
        """The message is done and does not come again. Raises: BrokerRefused, AnswerTimeout, ..."""
        topic = with_namespace(self.config.namespace, message.topic)
        await self._running().ack(topic, message)

    async def renew(self, message: MessageExt, invisible_ms: int) -> None:
        """The message comes again so long after now, unless it is acknowledged before; 0: at once.

        The message carries the new receipt. Raises: BrokerRefused, e.g. when it has come again already.
        """
        topic = with_namespace(self.config.namespace, message.topic)
        await self._running().renew(topic, message, invisible_ms)
