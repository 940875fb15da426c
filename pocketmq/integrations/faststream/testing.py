"""TestPocketBroker: functions are called without a broker; each group gets a message once."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from pocketmq.client import Message, MessageExt, SendResult
from pocketmq.integrations.faststream.broker import PocketBroker
from pocketmq.integrations.faststream.producer import PocketProducer
from pocketmq.integrations.faststream.publisher import TopicPublisher
from pocketmq.integrations.faststream.response import PocketPublishCommand
from pocketmq.integrations.faststream.subscriber import TopicSubscriber


class TestPocketBroker(TestBroker, broker=PocketBroker):  # type: ignore[call-arg]
    """`async with TestPocketBroker(broker) as test: await test.publish(...)`; with_real: a real broker."""

    def create_publisher_fake_subscriber(
        self, broker: PocketBroker, publisher: TopicPublisher
    ) -> tuple[TopicSubscriber, bool]:
        """Return who gets what a publisher sends, and whether the program declared it."""
        for declared in _subscribers(self.brokers):
            if declared.topic == publisher.topic:
                return declared, True
        made = broker.subscriber(publisher.topic, batch=publisher.config.batch, persistent=False)
        return made, False

    @contextmanager
    def _patch_producer(self, broker: PocketBroker) -> Iterator[None]:
        config = broker.config.broker_config
        # For subscribers that start within the test.
        nothing = AsyncMock(return_value=_NothingComes())
        with (
            change_producer(config, FakeProducer(broker, self.brokers)),
            patch.object(config, "subscribe", nothing),
        ):
            yield

    async def _fake_connect(self, broker: PocketBroker, *args: Any, **kwargs: Any) -> MagicMock:
        return MagicMock()


class FakeProducer(PocketProducer):
    """Gives messages to the functions at once."""

    def __init__(self, broker: PocketBroker, brokers: Sequence[PocketBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self.serializer = broker.config.fd_config._serializer
        self.codec = broker.config.broker_codec or self.codec
        self._brokers = brokers

    async def publish(self, cmd: PocketPublishCommand) -> None:
        """Call the functions of a topic."""
        message = _as_delivered(await self.encoded(cmd))
        for subscriber in self._groups(cmd.destination):
            await subscriber.process_message([message] if subscriber.batch else message)

    async def publish_batch(self, cmd: PocketPublishCommand) -> list[SendResult]:
        """Call the functions of a topic, with all messages or with each."""
        messages = [_as_delivered(each) for each in await self.encoded_batch(cmd)]
        for subscriber in self._groups(cmd.destination):
            for each in [messages] if subscriber.batch else messages:
                await subscriber.process_message(each)
        return []

    async def request(self, cmd: PocketPublishCommand) -> MessageExt:
        """Call a function of a topic, and return its answer. Raises: SubscriberNotFound, TimeoutError."""
        message = _as_delivered(await self.encoded(cmd))
        for subscriber in self._groups(cmd.destination):
            async with asyncio.timeout(cmd.timeout):
                result = await subscriber.process_message(
                    [message] if subscriber.batch else message
                )
            answer = PocketPublishCommand.from_cmd(result.as_publish_command())
            answer.destination = cmd.destination
            return _as_delivered(await self.encoded(answer))
        raise SubscriberNotFound

    def _groups(self, topic: str) -> Iterator[TopicSubscriber]:
        seen = set()
        for subscriber in _subscribers(self._brokers):
            config = subscriber.config
            group = config.group_of(subscriber._outer_config, subscriber.topic)
            if subscriber.topic == topic and group not in seen:
                seen.add(group)
                yield subscriber


class _NothingComes:
    async def receive(self, *_: Any, **__: Any) -> list[MessageExt]:
        await asyncio.Event().wait()
        return []

    async def shutdown(self) -> None:
        pass


def _subscribers(brokers: Iterable[PocketBroker]) -> Iterator[TopicSubscriber]:
    return (each for broker in brokers for each in broker.subscribers)


def _as_delivered(message: Message) -> MessageExt:
    return MessageExt(
        message.topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
    )
