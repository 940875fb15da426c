"""What a function answers or publishes, with RocketMQ's options."""

from collections.abc import Mapping
from typing import Any, Self, TypedDict, Unpack

from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response

from pocketmq.client import MessageExt


class SendingOptions(TypedDict, total=False):
    """tags, keys: see Message. delay_s: seconds that the message waits in the broker. sharding_key: messages
    with the same one go to the same queue.
    """

    tags: str | None
    keys: str | None
    delay_s: float
    sharding_key: str | None


class PublishingOptions(SendingOptions, total=False):
    """Those of FastStream, too. timeout: of a request, in seconds."""

    headers: dict[str, Any] | None
    correlation_id: str | None
    reply_to: str
    timeout: float | None


class PocketPublishCommand(BatchPublishCommand):
    """A message to send, or several; answers: the request that it replies to."""

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        _publish_type: PublishType,
        topic: str = "",
        **options: Unpack[PublishingOptions],
    ) -> None:
        """Raises: TypeError for an unknown option."""
        if unknown := options.keys() - PublishingOptions.__annotations__.keys():
            raise TypeError(f"a message to topic {topic!r} has no option {min(unknown)!r}")
        super().__init__(
            message,
            *messages,
            _publish_type=_publish_type,
            destination=topic,
            reply_to=options.get("reply_to", ""),
            correlation_id=options.get("correlation_id"),
            headers=dict(options.get("headers") or {}),
        )
        self.tags, self.keys = options.get("tags"), options.get("keys")
        self.delay_s, self.sharding_key = options.get("delay_s", 0), options.get("sharding_key")
        self.timeout = options.get("timeout", 30.0)
        self.answers: MessageExt | None = None

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Return a command of any broker as one of this."""
        if isinstance(cmd, cls):
            return cmd
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *more,
            _publish_type=cmd.publish_type,
            topic=cmd.destination,
            reply_to=cmd.reply_to,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
        )

    def fill(self, options: Mapping[str, Any]) -> None:
        """Take options that the function's answer left open."""
        for name, value in options.items():
            setattr(self, name, getattr(self, name) or value)


class PocketResponse(Response):
    """A function's answer, with options of its message."""

    def __init__(
        self,
        body: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[SendingOptions],
    ) -> None:
        super().__init__(body, headers=dict(headers or {}), correlation_id=correlation_id)
        self._options = options

    def as_publish_command(self) -> PocketPublishCommand:
        """Return the command that publishes it. Raises: TypeError for an unknown option."""
        return PocketPublishCommand(
            self.body,
            _publish_type=PublishType.PUBLISH,
            headers=self.headers,
            correlation_id=self.correlation_id,
            **self._options,
        )
