"""Subscribers: members of a group, whose messages functions get one by one, in batches, or concurrently."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from faststream import AckPolicy
from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.subscriber.mixins import ConcurrentMixin, TasksMixin
from faststream._internal.endpoint.utils import process_msg

from pocketmq.client import MessageExt, SimpleConsumer
from pocketmq.integrations.faststream.config import PocketSubscriberConfig
from pocketmq.integrations.faststream.envelope import Parser, is_request
from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.producer import Answering
from pocketmq.integrations.queue_names import topic_of
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

_PAUSE_S = 1.0


class TopicSubscriber(TasksMixin, SubscriberUsecase):
    """One message, or one batch, after the other."""

    def __init__(self, config: PocketSubscriberConfig, specification: Any, calls: Any) -> None:
        self._reader = Parser()
        config.parser = self._reader.parse_batch if config.batch else self._reader.parse_message
        config.decoder = self._reader.decode_batch if config.batch else self._reader.decode_message
        super().__init__(config, specification, calls)
        self.config = config
        self._opening = asyncio.Lock()

    @property
    def topic(self) -> str:
        """The topic, with the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def batch(self) -> bool:
        """Whether its functions get lists."""
        return self.config.batch

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Join the group, and give messages to the functions. Raises: PocketMQError."""
        await super().start()
        if self.calls:
            consumer = await self._open()
            self._post_start()
            self.add_task(self._consume_loop, (consumer,))
        else:
            self._post_start()

    async def stop(self) -> None:
        """Finish running functions for `graceful_timeout`, then leave; what is unanswered comes again."""
        self.running = False
        # A function that stops its own subscriber does so in the task that is cancelled at the end.
        await SubscriberUsecase.stop(self)
        consumer, self._reader.consumer = self._reader.consumer, None
        if consumer is not None:
            await consumer.shutdown()
        await super().stop()

    async def _open(self) -> SimpleConsumer:
        async with self._opening:
            if self._reader.consumer is None:
                self._reader.consumer = await self._outer_config.broker_config.subscribe(
                    self.config, topic_of(self.topic)
                )
            return self._reader.consumer

    async def _consume_loop(self, consumer: SimpleConsumer) -> None:
        while self.running:
            try:
                found = await consumer.receive(self.config.count_max)
            except PocketMQError as error:
                if self.running:
                    log.warning("cannot receive, will retry topic=%s reason=%s", self.topic, error)
                    await asyncio.sleep(_PAUSE_S)
                continue
            if found and self.batch:
                await self._give(found)
                continue
            for message in found:
                await self._give(message)

    async def _give(self, message: MessageExt | list[MessageExt]) -> None:
        await self.consume(message)

    # ------------------------------------------------------------ without functions

    async def get_one(self, *, timeout: float = 5.0) -> PocketMessage | None:  # noqa: ASYNC109 - FastStream's word
        """Return a message, which the caller acknowledges; None if none came in time (seconds)."""
        self._check_silent()
        # What joins the group is not cut short.
        await self._open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                async for message in self:
                    return message
        return None

    async def __aiter__(self) -> AsyncIterator[PocketMessage]:
        """Yield messages as they come, which the caller acknowledges."""
        self._check_silent()
        while True:
            message = await self._next()
            if message is not None:
                yield message

    def _check_silent(self) -> None:
        assert not self.calls, "get_one() and iterators are for a subscriber without functions"

    async def _next(self) -> PocketMessage | None:
        consumer = await self._open()
        count = self.config.count_max if self.batch else 1
        found = await consumer.receive(count)
        if not found:
            return None
        raw = found if self.batch else found[0]
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        middlewares = (each(raw, context=context) for each in self._broker_middlewares)
        message = await process_msg(
            msg=raw, middlewares=middlewares, parser=parser, decoder=decoder
        )
        if self.ack_policy is AckPolicy.ACK_FIRST:
            await message.ack()
        return message  # type: ignore[no-any-return]

    # ------------------------------------------------------------ what FastStream asks

    def _make_response_publisher(self, message: PocketMessage) -> Sequence[Answering]:
        raw = message.raw_message
        first = raw[0] if isinstance(raw, list) else raw
        answers = first if is_request(first) else None
        producer = self._outer_config.producer
        return (Answering(producer, topic=message.reply_to, answers=answers),)

    def get_log_context(self, message: PocketMessage | None) -> dict[str, str]:
        """Return what a line of the log says of a message."""
        return {"topic": self.topic, "message_id": getattr(message, "message_id", "")}


class ConcurrentTopicSubscriber(ConcurrentMixin, TopicSubscriber):
    """Up to max_workers messages at once."""

    def __init__(
        self, config: PocketSubscriberConfig, specification: Any, calls: Any, max_workers: int
    ) -> None:
        super().__init__(config, specification, calls, max_workers=max_workers)  # type: ignore[call-arg]

    async def start(self) -> None:
        """Join the group, and give messages to the functions. Raises: PocketMQError."""
        await super().start()
        self.start_consume_task()

    async def _give(self, message: MessageExt | list[MessageExt]) -> None:
        await self._put_msg(message)
