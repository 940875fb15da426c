"""Publishers: what functions return, and what a program publishes by them, goes to one topic."""

from collections.abc import Iterable
from typing import Any, Unpack

from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream.response import PublishCommand, PublishType

from pocketmq.client import SendResult
from pocketmq.integrations.faststream.config import PocketPublisherConfig
from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.response import PocketPublishCommand, PublishingOptions


class TopicPublisher(PublisherUsecase):
    """Sends to one topic."""

    def __init__(self, config: PocketPublisherConfig, specification: Any) -> None:
        super().__init__(config, specification)
        self.config = config

    @property
    def topic(self) -> str:
        """The topic, with the prefixes of its routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    async def publish(
        self, *messages: Any, topic: str = "", **options: Unpack[PublishingOptions]
    ) -> SendResult | list[SendResult]:
        """Send a message; with `batch` several. Raises: PocketMQError."""
        command = self._command(PublishType.PUBLISH, topic, options, *(messages or (None,)))
        return await self._send(command, ())

    async def request(
        self, message: Any, topic: str = "", **options: Unpack[PublishingOptions]
    ) -> PocketMessage:
        """Send a message and wait for its answer. Raises: TimeoutError, PocketMQError."""
        command = self._command(PublishType.REQUEST, topic, options, message)
        producer = self._outer_config.producer
        return await self._basic_request(command, producer=producer)  # type: ignore[no-any-return]

    def _command(
        self, kind: PublishType, topic: str, options: PublishingOptions, *messages: Any
    ) -> PocketPublishCommand:
        given: PublishingOptions = {**self.config.options, **options}
        given["headers"] = {**self.config.headers, **(options.get("headers") or {})}
        given["correlation_id"] = options.get("correlation_id") or self._outer_config.id_generator()
        return PocketPublishCommand(
            *messages, _publish_type=kind, topic=topic or self.topic, **given
        )

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]
    ) -> SendResult | list[SendResult]:
        """Send what a function returned."""
        command = PocketPublishCommand.from_cmd(cmd, batch=self.config.batch)
        command.destination = self.topic
        command.add_headers(self.config.headers, override=False)
        command.fill(self.config.options)
        return await self._send(command, _extra_middlewares)

    async def _send(
        self, command: PocketPublishCommand, middlewares: Iterable[Any]
    ) -> SendResult | list[SendResult]:
        send = self._basic_publish_batch if self.config.batch else self._basic_publish
        return await send(  # type: ignore[no-any-return]
            command, producer=self._outer_config.producer, _extra_middlewares=middlewares
        )
