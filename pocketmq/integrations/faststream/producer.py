"""How commands are sent: messages, batches, requests, and the answers to requests."""

import asyncio
import logging
from typing import Any

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState
from faststream.response import PublishCommand

from pocketmq.client import Message, MessageExt, Producer, ReplyTimeout, SendResult, reply_to
from pocketmq.integrations.faststream.envelope import Parser, message_of
from pocketmq.integrations.faststream.response import PocketPublishCommand
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

# A request ends by its own time-out, not by the client's.
_LATER_MS = 1_000


class PocketProducer(ProducerProto):
    """Owner: a broker's configuration; between connect() and disconnect() it can send."""

    def __init__(self, parser: Any = None, decoder: Any = None, clock: Clock | None = None) -> None:
        """parser, decoder: of the answers to requests, beside ours."""
        default = Parser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self._clock = clock or SystemClock()
        self.codec: Any = DefaultCodec()
        self.serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: Any, codec: Any) -> None:
        """Send by a client that has started."""
        self._producer, self.serializer = producer, serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Send no more."""
        self._producer = None

    @property
    def _running(self) -> Producer:
        if self._producer is None:
            raise IncorrectState(
                "the broker is not connected: use `async with broker`, or connect()"
            )
        return self._producer

    async def encoded(self, cmd: PocketPublishCommand) -> Message:
        """Return the message of a command. Raises: SetupError."""
        return message_of(cmd, *await self.codec.encode(cmd.body, self.serializer))

    async def encoded_batch(self, cmd: PocketPublishCommand) -> list[Message]:
        """Return the messages of a command. Raises: SetupError."""
        bodies = cmd.batch_bodies
        if isinstance(self.codec, BatchCodecProto):
            encoded = await self.codec.encode_batch(bodies, self.serializer)
        else:
            encoded = [await self.codec.encode(body, self.serializer) for body in bodies]
        return [message_of(cmd, *each) for each in encoded]

    async def publish(self, cmd: PocketPublishCommand) -> SendResult | None:
        """Send one message; None if it answers a client that has gone. Raises: PocketMQError."""
        message = await self.encoded(cmd)
        if cmd.answers is not None:
            return await self._answer(cmd.answers, message)
        due = self._clock.now_ms() + int(cmd.delay_s * 1000) if cmd.delay_s > 0 else None
        return await self._running.send(
            message, deliver_at_ms=due, sharding_key=cmd.sharding_key or None
        )

    async def _answer(self, request: MessageExt, message: Message) -> SendResult | None:
        reply = reply_to(request, message.body)
        reply.properties.update(message.properties)
        try:
            return await self._running.send(reply)
        except PocketMQError as error:
            log.warning("cannot answer a request id=%s reason=%s", request.msg_id, error)
            return None

    async def publish_batch(self, cmd: PocketPublishCommand) -> list[SendResult]:
        """Send messages in as few requests as possible. Raises: PocketMQError."""
        messages = await self.encoded_batch(cmd)
        return await self._running.send_batch(messages) if messages else []

    async def request(self, cmd: PocketPublishCommand) -> MessageExt:
        """Send a message and wait for its answer. Raises: TimeoutError, PocketMQError."""
        message = await self.encoded(cmd)
        timeout = 30.0 if cmd.timeout is None else cmd.timeout
        try:
            async with asyncio.timeout(timeout):
                timeout_ms = int(timeout * 1000) + _LATER_MS
                return await self._running.request(message, timeout_ms=timeout_ms)
        except ReplyTimeout as error:
            raise TimeoutError(str(error)) from error


class Answering(FakePublisher):
    """Publishes what a function returns, to whom its message says."""

    def __init__(self, producer: ProducerProto, *, topic: str, answers: MessageExt | None) -> None:
        """topic: where answers go. answers: the request of a client that waits."""
        super().__init__(producer=producer)
        self._topic = topic
        self._answers = answers

    def patch_command(self, cmd: PublishCommand) -> PocketPublishCommand:
        """Return the command with its destination."""
        found = PocketPublishCommand.from_cmd(super().patch_command(cmd))
        found.destination = self._topic
        found.answers = self._answers
        return found
