"""A broker with its port for metrics, and what that shows."""

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pocketmq.broker.figures.metric import Metric
from pocketmq.broker.figures.metrics import (
    metrics,
)
from pocketmq.console.metrics.page import render
from pocketmq.testing import InProcess


def scraped(server: InProcess, **options: int) -> dict[str, list[Sample]]:
    """Samples by name, as Prometheus' own parser reads the text."""

    async def text() -> bytes:
        return render(server.running, **options)

    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(server.call(text()).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def figure(server: InProcess, name: str, **labels: str) -> float:
    """The figure of the one sample with these labels; 0 without one."""
    found = [
        sample.value
        for sample in scraped(server).get(name, [])
        if labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, f"{name} {labels}: {len(found)} samples"
    return found[0] if found else 0.0


def shown_families() -> dict[str, Metric]:
    return {name: metric for metric in metrics() for name in metric.shown_names}
