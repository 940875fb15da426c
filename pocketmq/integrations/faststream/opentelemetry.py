"""Spans of FastStream's own: `PocketBroker(middlewares=[PocketTelemetryMiddleware()])`.

Headers carry their context, and so do those of the client's spans (option `otel`): use either.
"""

from typing import Any

from faststream.opentelemetry import TelemetrySettingsProvider
from faststream.opentelemetry.middleware import TelemetryMiddleware

from pocketmq.client import MessageExt
from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.response import PocketPublishCommand


class PocketTelemetryMiddleware(TelemetryMiddleware):
    """tracer_provider, meter_provider, meter: see FastStream."""

    def __init__(self, *, include_messages_counters: bool = True, **options: Any) -> None:
        super().__init__(
            settings_provider_factory=_settings,
            include_messages_counters=include_messages_counters,
            **options,
        )


def _settings(raw: Any) -> "_Settings":
    return _Settings()


class _Settings(TelemetrySettingsProvider):
    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: PocketMessage) -> dict[str, Any]:
        messages = _messages(msg)
        found = {
            "messaging.system": self.messaging_system,
            "messaging.message.id": msg.message_id,
            "messaging.message.conversation_id": msg.correlation_id,
            "messaging.message.payload_size_bytes": sum(len(each.body) for each in messages),
            "messaging.destination_publish.name": messages[0].topic,
        }
        if len(messages) > 1:
            found["messaging.batch.message_count"] = len(messages)
        return found

    def get_consume_destination_name(self, msg: PocketMessage) -> str:
        return _messages(msg)[0].topic

    def get_publish_attrs_from_cmd(self, cmd: PocketPublishCommand) -> dict[str, Any]:
        found = {
            "messaging.system": self.messaging_system,
            "messaging.destination.name": cmd.destination,
            "messaging.message.conversation_id": cmd.correlation_id,
        }
        if (count := len(cmd.batch_bodies)) > 1:
            found["messaging.batch.message_count"] = count
        return found

    def get_publish_destination_name(self, cmd: PocketPublishCommand) -> str:
        return str(cmd.destination)


def _messages(msg: PocketMessage) -> list[MessageExt]:
    raw = msg.raw_message
    return raw if isinstance(raw, list) else [raw]
