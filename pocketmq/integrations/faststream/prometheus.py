"""Metrics of FastStream's own: `PocketBroker(middlewares=[PocketPrometheusMiddleware(registry=...)])`."""

from typing import Any

from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider
from faststream.prometheus.middleware import PrometheusMiddleware

from pocketmq.integrations.faststream.message import PocketMessage
from pocketmq.integrations.faststream.response import PocketPublishCommand


class PocketPrometheusMiddleware(PrometheusMiddleware):
    """registry, app_name, metrics_prefix, received_messages_size_buckets, custom_labels: see FastStream."""

    def __init__(self, **options: Any) -> None:
        super().__init__(settings_provider_factory=_settings, **options)


def _settings(raw: Any) -> "_Settings":
    return _Settings()


class _Settings(MetricsSettingsProvider):
    messaging_system = "rocketmq"

    def get_consume_attrs_from_message(self, msg: PocketMessage) -> ConsumeAttrs:
        raw = msg.raw_message
        messages = raw if isinstance(raw, list) else [raw]
        return {
            "destination_name": messages[0].topic,
            "message_size": sum(len(each.body) for each in messages),
            "messages_count": len(messages),
        }

    def get_publish_destination_name_from_cmd(self, cmd: PocketPublishCommand) -> str:
        return str(cmd.destination)
