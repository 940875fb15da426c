"""The health of a broker, and the dashboard and the pages that name its metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.figures.metrics import (
    NODE_LABELS,
    metrics,
)
from pocketmq.console.metrics.page import health_page, ready_page
from pocketmq.testing import InProcess
from tests.broker.metrics_site import figure, shown_families
from tests.kit.waiting import until


@pytest.fixture
def server() -> Iterator[InProcess]:
    with InProcess() as server:
        yield server


ROOT = Path(__file__).parents[2]


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (ROOT / "docker" / "grafana" / "pocketmq.json").read_text(encoding="utf-8")
    )
    return found


def test_a_broker_that_serves_is_well_and_ready(server: InProcess) -> None:
    status, body = health_page([server.running])
    assert (status, b'"status":"ok"' in body) == (200, True)
    status, body = ready_page([server.running])
    assert (status, b'"registered":true' in body) == (200, True)


def test_a_full_disk_is_unwell_and_says_why(server: InProcess) -> None:
    retention = server.running.parts.messages.store.retention
    assert retention is not None
    server.running.store_config.disk_space_warning_level_ratio = 0.9
    retention.measure_disk_use = lambda path: 0.95
    server.clock.advance(60)
    until(lambda: health_page([server.running])[0] == 503, "the store to notice")
    _, body = health_page([server.running])
    assert b"pocketmq: the store takes no messages" in body
    assert b"95% used" in body
    assert ready_page([server.running])[0] == 503
    assert figure(server, "pocketmq_store_writable") == 0


def test_work_that_the_disk_refuses_is_unwell_until_it_succeeds(server: InProcess) -> None:
    side_tasks = server.running.parts.messages.store.side_tasks

    async def page(error: OSError | None) -> tuple[int, bytes]:
        if error is None:
            side_tasks.went_well("some-work")
        else:
            side_tasks.failed("some-work", error)
        return health_page([server.running])

    status, body = server.call(page(OSError(28, "No space left on device")))
    assert (status, b"some-work" in body, b"No space left" in body) == (503, True, True)
    assert server.call(page(None))[0] == 200


def test_a_broker_that_no_client_may_use_is_not_ready() -> None:
    with InProcess({"brokerPermission": 0}) as server:
        assert health_page([server.running])[0] == 200
        status, body = ready_page([server.running])
        assert (status, b"brokerPermission" in body) == (503, True)


def test_a_broker_that_has_stopped_is_not_ready(server: InProcess) -> None:
    broker = server.running
    server.stop()
    status, body = ready_page([broker])
    assert status == 503
    assert b"registered with no name server" in body


def test_the_dashboard_names_exported_metrics_only() -> None:
    """A Grafana dashboard file."""
    shown = shown_families()
    dashboard = _dashboard()
    queries = [
        (target["expr"], target["legendFormat"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    queries += [
        (each["definition"], "") for each in dashboard["templating"]["list"] if "definition" in each
    ]
    assert len(queries) > 20
    for expression, legend in queries:
        names = re.findall(r"\b(?:rocketmq|pocketmq)_\w+", expression)
        assert names, expression
        labels = {*NODE_LABELS}.union(*(shown[name].labels for name in names))
        used = set(re.findall(r'(\w+)=~?"', expression)) | set(re.findall(r"{{(\w+)}}", legend))
        for group in re.findall(r"by \(([^)]*)\)", expression):
            used |= set(group.split(", "))
        assert used <= labels, expression
        for name in names:
            assert (shown[name].kind == "counter") == (f"rate({name}" in expression), expression


def test_the_dashboards_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(column for column, _ in cells) < 24
        taken |= cells


def test_every_metric_stands_in_the_documentation() -> None:
    page = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    assert [metric.name for metric in metrics() if f"`{metric.name}`" not in page] == []
