"""MetricsPush: the figures of a broker sent to an OpenTelemetry collector (metricsExporterType=OTLP_HTTP,
OTLP_GRPC).

    async with MetricsPush(config, broker, exporter(config)):
        ...                                     # every otlpInterval

The figures are those of /metrics, under RocketMQ's names; OpenTelemetry's own code (extra `otel`) encodes and
sends them, in a thread. If a collector does not answer, that is logged and that interval's figures are lost;
counters continue.

A collector that answers byte by byte holds the thread, not the broker: no task waits for longer than
_WITHIN_S, one thread at a time sends, and a broker ends without it. Of an answer that never ends
_ANSWER_SIZE_MAX is read.
"""

import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pocketmq.broker.figures.metrics import OVERFLOW, Family, snapshot_in_pieces
from pocketmq.broker.figures.metrics_config import OTLP_GRPC, MetricsConfig
from pocketmq.client.network.runner import Runner
from pocketmq.console.outbound import OutboundThread

if TYPE_CHECKING:
    import requests

    from pocketmq.broker.broker import Broker

log = logging.getLogger(__name__)

_CUMULATIVE = export.AggregationTemporality.CUMULATIVE
# Of each step of a call, as OpenTelemetry and requests understand it: to connect, to write, to read some.
_TIMEOUT_S = 2
# For the whole call, with what is tried again.
_WITHIN_S = 5
_ANSWER_SIZE_MAX = 64 << 10


def exporter(config: MetricsConfig) -> export.MetricExporter:
    """Return OpenTelemetry's exporter for the protocol. Raises: ModuleNotFoundError without its extra."""
    if config.exporter_type == OTLP_GRPC:
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as by_grpc

        return by_grpc.OTLPMetricExporter(config.collector, timeout=_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as by_http

    return by_http.OTLPMetricExporter(config.collector, timeout=_TIMEOUT_S, session=_session())


def _session() -> "requests.Session":
    """Return a session that reads no more of an answer than it may have."""
    import requests

    def cut(response: "requests.Response", **_: object) -> None:
        body = response.raw.read(_ANSWER_SIZE_MAX)
        response.raw.close()
        response.raw = io.BytesIO(body)

    session = requests.Session()
    session.stream = True
    session.hooks["response"].append(cut)
    return session


class MetricsPush:
    """Sends while entered, and once more when left."""

    def __init__(
        self, config: MetricsConfig, broker: "Broker", sender: export.MetricExporter
    ) -> None:
        self._config = config
        self._broker = broker
        self._began_ns = broker.clock.now_ms() * 1_000_000
        self._runner = Runner("metrics push")
        self._exporter = sender
        self._thread = OutboundThread[bool]("metrics push")

    async def __aenter__(self) -> "MetricsPush":
        await self._runner.start()
        interval_ms = self._config.otlp_interval
        self._runner.every(interval_ms, self.push, first_ms=interval_ms, name="metrics push")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.stop()
        await self.push()
        self._exporter.shutdown(timeout_millis=_TIMEOUT_S * 1000)

    async def push(self) -> bool:
        """Send the current figures. Returns: whether the collector accepted them."""
        families = await snapshot_in_pieces(self._broker, self._config.cardinality_limit)
        now_ns = self._broker.clock.now_ms() * 1_000_000
        found = await self._is_sent(families, now_ns)
        if not found:
            log.warning(
                "cannot push metrics, the collector did not accept them at=%s",
                self._config.collector,
            )
        return found

    async def _is_sent(self, families: list[Family], now_ns: int) -> bool:
        try:
            return await self._thread.call(lambda: self._send(families, now_ns), _WITHIN_S)
        except (OSError, RuntimeError, ValueError) as error:
            log.warning("could not send metrics reason=%r", error)
            return False

    def _send(self, families: list[Family], now_ns: int) -> bool:
        """Send and empty them: many objects are freed here, and not by the event loop."""
        metrics = [
            export.Metric(each.metric.name, each.metric.help, each.metric.unit or None, data)
            for each in families
            for data in self._data(each, now_ns)
        ]
        families.clear()
        name = self._broker.config.broker_name
        resource = Resource({"service.name": "pocketmq", "service.instance.id": name})
        scope = export.ScopeMetrics(InstrumentationScope("pocketmq.broker"), metrics, "")
        data = export.MetricsData([export.ResourceMetrics(resource, [scope], "")])
        return self._exporter.export(data) is export.MetricExportResult.SUCCESS

    def _data(
        self, family: Family, now_ns: int
    ) -> Iterator[export.Gauge | export.Sum | export.Histogram]:
        if family.spreads:
            yield export.Histogram(
                [
                    export.HistogramDataPoint(
                        dict(zip(family.labels, each.values, strict=True)),
                        self._began_ns,
                        now_ns,
                        sum(each.counts),
                        each.sum,
                        each.counts,
                        each.bounds,
                        # The smallest and the largest value are not recorded.
                        None,  # type: ignore[arg-type]
                        None,  # type: ignore[arg-type]
                    )
                    for each in family.spreads
                ],
                _CUMULATIVE,
            )
        points = [
            export.NumberDataPoint(
                dict(zip(family.labels, values, strict=True)), self._began_ns, now_ns, figure
            )
            for values, figure in family.samples
        ]
        if family.overflow is not None:
            attributes = {OVERFLOW: True}
            points.append(
                export.NumberDataPoint(attributes, self._began_ns, now_ns, family.overflow)
            )
        if points and family.metric.kind == "counter":
            yield export.Sum(points, _CUMULATIVE, is_monotonic=True)
        elif points:
            yield export.Gauge(points)
