"""Metrics: what a broker measures, as families of samples with RocketMQ 5's names and labels.

A read-only view of the broker's objects: nothing is counted here, nothing is kept but the lags (lags.py), and
the hot paths are not involved. The tables are in metrics_traffic (messages, clients), metrics_groups,
metrics_store and metrics_replicas; pocketmq.console.metrics.page renders the text.
Source of names, labels and units: BrokerMetricsConstant, BrokerMetricsManager,
DefaultStoreMetricsConstant, RocketMQ 5.3.3, and what the metrics port of 5.5.0 prints.

1. Every sample begins with the labels of its node: cluster, node_type, node_id.
2. A family has at most metricsOtelCardinalityLimit label sets; what is beyond is one sample with
   otel_metric_overflow="true", as OpenTelemetry has it, and is counted in pocketmq_metrics_overflow_series.
3. Our own families are named pocketmq_..., to tell them from RocketMQ's.
4. A scrape of many queues is taken in pieces, with clients served between them: samples are read from
   copies of the tables, and a reader that counts for long before its first sample yields None meanwhile.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pocketmq.broker.figures.metric import PIECE, Metric, Sample, Spread

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

NODE_LABELS = ("cluster", "node_type", "node_id")
CARDINALITY_LIMIT = 50_000
OVERFLOW = "otel_metric_overflow"
OVERFLOW_METRIC = "pocketmq_metrics_overflow_series"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples at one moment; labels: with those of the node in front."""

    metric: Metric
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]
    spreads: tuple[Spread, ...] = ()
    overflow: float | None = None


def metrics() -> tuple[Metric, ...]:
    """Return every row of the tables."""
    from pocketmq.broker.figures.metrics_groups import GROUP_METRICS
    from pocketmq.broker.figures.metrics_replicas import REPLICA_METRICS
    from pocketmq.broker.figures.metrics_store import STORE_METRICS
    from pocketmq.broker.figures.metrics_traffic import TRAFFIC_METRICS

    return (*TRAFFIC_METRICS, *GROUP_METRICS, *STORE_METRICS, *REPLICA_METRICS)


def snapshot(broker: "Broker", cardinality_limit: int = CARDINALITY_LIMIT) -> list[Family]:
    """Return all families now. Call in the broker's event loop; takes some µs per sample."""
    found: list[Family] = []
    for _ in _look(broker, cardinality_limit, found):
        pass
    return found


async def snapshot_in_pieces(
    broker: "Broker", cardinality_limit: int = CARDINALITY_LIMIT
) -> list[Family]:
    """The same in turns of some milliseconds (invariant 4)."""
    found: list[Family] = []
    for _ in _look(broker, cardinality_limit, found):
        await asyncio.sleep(0)
    return found


def _look(broker: "Broker", limit: int, found: list[Family]) -> Iterator[None]:
    """Append the families to `found`; yields after each piece."""
    broker.parts.lags.refresh()
    yield
    broker.parts.lags.go_on()
    yield
    identity = broker.registration.identity
    node = (identity.cluster, "broker", identity.broker_name)
    folded = 0
    for metric in metrics():
        family, beyond = yield from _family(metric, node, metric.read(broker), limit)
        if metric.spread is not None:
            spreads: list[Spread] = []
            for each in metric.spread(broker):
                if each is None:
                    yield
                elif len(spreads) < limit:
                    spreads.append(each._replace(values=(*node, *each.values)))
            family = replace(family, spreads=tuple(spreads))
            yield
        folded += beyond
        found.append(family)
    overflow, _ = yield from _family(_OVERFLOW, node, [((), folded)], limit)
    found.append(overflow)


def _family(
    metric: Metric, node: tuple[str, ...], samples: Iterable[Sample | None], limit: int
) -> Generator[None, None, tuple[Family, int]]:
    """Return the family, and how many samples overflowed its limit."""
    kept: list[Sample] = []
    overflow, beyond = 0.0, 0
    left = PIECE
    for sample in samples:
        left -= 1
        if sample is None or not left:
            left = PIECE
            yield
        if sample is None:
            continue
        values, figure = sample
        if len(kept) < limit:
            kept.append(((*node, *values), figure))
        else:
            overflow += figure
            beyond += 1
    labels = (*NODE_LABELS, *metric.labels)
    found = Family(metric, labels, tuple(kept), overflow=overflow if beyond else None)
    return found, beyond


_OVERFLOW = Metric(
    OVERFLOW_METRIC,
    "gauge",
    "Label sets beyond the limit of their metric",
    (),
    # Counted by snapshot itself.
    lambda broker: (),
)
