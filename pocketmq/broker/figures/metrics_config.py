"""MetricsConfig: the settings of the metrics port, with RocketMQ 5's names. Source: BrokerConfig, 5.3.3."""

from dataclasses import dataclass

from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Settings, key

PROM, OTLP, OTLP_GRPC = "PROM", "OTLP_HTTP", "OTLP_GRPC"
_NOT_HERE = ("LOG",)


@dataclass
class MetricsConfig(Settings):
    """The settings of a broker's Prometheus port, besides the console's /metrics."""

    exporter_type: str = key(
        "DISABLE",
        name="metricsExporterType",
        choices=("DISABLE", PROM, OTLP, OTLP_GRPC, *_NOT_HERE),
        help="PROM: serve /metrics, /health and /ready on metricsPromExporterPort. OTLP_HTTP (PocketMQ "
        "only) and OTLP_GRPC: send the metrics to an OpenTelemetry collector. LOG exists only in RocketMQ: "
        "the broker does not start with it.",
    )
    prom_exporter_port: int = key(
        5557,
        name="metricsPromExporterPort",
        min=0,
        max=65_535,
        help="Port for Prometheus; 0: any free one.",
    )
    prom_exporter_host: str = key(
        "",
        name="metricsPromExporterHost",
        help="Address of the metrics port; by default the one that the broker listens on (bindAddress).",
    )
    otlp_endpoint: str = key(
        "http://127.0.0.1:4318/v1/metrics",
        name="otlpEndpoint",
        help="PocketMQ only: URL of the collector for OTLP_HTTP.",
    )
    grpc_target: str = key(
        "http://127.0.0.1:4317",
        name="metricsGrpcExporterTarget",
        help="Collector for OTLP_GRPC: http://HOST:PORT, or https:// for TLS.",
    )
    otlp_interval: int = key(
        60_000,
        name="otlpInterval",
        min=1_000,
        unit="ms",
        help="PocketMQ only: interval between two exports.",
    )
    cardinality_limit: int = key(
        50_000,
        name="metricsOtelCardinalityLimit",
        min=1,
        help="Most label sets of one metric; the rest are shown as one sample.",
    )

    def __post_init__(self) -> None:
        if self.exporter_type in _NOT_HERE:
            raise IllegalArgument(
                f"metricsExporterType={self.exporter_type} is not supported: use OTLP_HTTP, OTLP_GRPC, or "
                "PROM and let a collector scrape that port"
            )

    @property
    def collector(self) -> str:
        """Return where metrics are pushed to; empty if they are not."""
        return {OTLP: self.otlp_endpoint, OTLP_GRPC: self.grpc_target}.get(self.exporter_type, "")

    @property
    def is_on(self) -> bool:
        """Return True if the port is enabled."""
        return self.exporter_type == PROM
