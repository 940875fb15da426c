"""Metrics beside `up` and `broker`: a separate port (metricsExporterType=PROM) or a collector."""

import importlib.util
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.figures.metrics_config import PROM, MetricsConfig
from pocketmq.cli.exits import CannotBegin
from pocketmq.cli.servers.listening import cannot_listen


def read_metrics_config(settings: dict[str, str]) -> MetricsConfig:
    """Take the port's settings out of `settings`. Raises: IllegalArgument."""
    config = MetricsConfig.from_properties(settings)
    for name in [*MetricsConfig.keys()]:
        settings.pop(name, None)
    return config


async def metrics_port(
    stack: AsyncExitStack, config: MetricsConfig, host: str, broker: Broker, *, figures: bool
) -> str:
    """Serve the port, or push the figures, until `stack` ends. Returns: the port's URL, "" without one.

    host: where the broker listens. figures: serve them on a free port of loopback if no port is configured.
    Raises: CannotBegin.
    """
    if config.collector:
        try:
            from pocketmq.console.metrics.push import MetricsPush, exporter

            sender = exporter(config)
        except ModuleNotFoundError as missing:
            raise CannotBegin(
                f"metricsExporterType={config.exporter_type} needs OpenTelemetry, which is not installed; "
                "install PocketMQ with its extra otel (otel-grpc for OTLP_GRPC): "
                'pip install "FOLDER_OR_WHEEL[broker,otel]"'
            ) from missing
        await stack.enter_async_context(MetricsPush(config, broker, sender))
    if figures and not config.is_on:
        loopback: dict[str, Any] = {"prom_exporter_host": "127.0.0.1", "prom_exporter_port": 0}
        config = replace(config, exporter_type=PROM, **loopback)
    if not config.is_on:
        return ""
    if importlib.util.find_spec("prometheus_client") is None:
        raise CannotBegin(
            "metricsExporterType=PROM needs prometheus-client, which is not installed: "
            'pip install "FOLDER_OR_WHEEL[broker,console]", or leave the setting out'
        )
    from pocketmq.console.metrics.port import MetricsPort

    port = MetricsPort(config, host, (broker,))
    try:
        await stack.enter_async_context(port)
    except OSError as error:
        raise cannot_listen(
            config.prom_exporter_host or host,
            config.prom_exporter_port,
            "--set metricsPromExporterPort=PORT",
            error,
        ) from error
    return f"http://{port.address}/metrics"
