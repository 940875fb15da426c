"""A delivered message as functions see it; raw_message is the client's MessageExt, or a list of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from faststream.message import StreamMessage

from pocketmq.client import MessageExt, SimpleConsumer


class PocketMessage(StreamMessage):
    """One message, or those of a batch; every answer counts once, the first one."""

    # None where there is nothing to answer: a reply, a message of a test.
    consumer: SimpleConsumer | None = None

    async def ack(self) -> None:
        """Acknowledge: it does not come again. Raises: PocketMQError."""
        if self.consumer is not None:
            await self._each(self.consumer.ack)
        await super().ack()

    async def nack(self, delay_ms: int = 0) -> None:
        """Have it come again after that time; after 16 times it is a dead letter. Raises: PocketMQError."""
        consumer = self.consumer
        if consumer is not None:
            await self._each(lambda message: consumer.renew(message, delay_ms))
        await super().nack()

    async def reject(self) -> None:
        """Make it a dead letter of the group. Raises: PocketMQError."""
        if self.consumer is not None:
            await self._each(self.consumer.dead_letter)
        await super().reject()

    async def _each(self, answer: Callable[[MessageExt], Awaitable[Any]]) -> None:
        if self.committed is not None:
            return
        raw = self.raw_message
        messages = raw if isinstance(raw, list) else [raw]
        await asyncio.gather(*(answer(message) for message in messages))
