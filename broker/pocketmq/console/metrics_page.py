"""/metrics, /health and /ready: figures for Prometheus, and answers for whoever restarts or routes.

    GET /metrics   Prometheus' text of every broker of this process (pocketmq.broker.metrics)
    GET /health    200 while every broker of this process is well, else 503; JSON with the reasons
    GET /ready     the same for "serves clients"

/health and /ready are for everybody. Where the console has a login, /metrics wants it too: the session of a
browser, or HTTP's basic authentication, which Prometheus calls basic_auth. prometheus-client is imported when
the first figures are asked for.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.broker.health import Health, health, readiness
from pocketmq.broker.metrics import CARDINALITY_LIMIT, OVERFLOW, Family, snapshot
from pocketmq.remoting import json_codec

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from pocketmq.broker.broker import Broker
    from pocketmq.console.state import Console

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE = "application/json"


def render(*brokers: "Broker", cardinality_limit: int = CARDINALITY_LIMIT) -> bytes:
    """Prometheus' text of one or more brokers. In their event loop."""
    return to_text([snapshot(broker, cardinality_limit) for broker in brokers])


def to_text(snapshots: Sequence[Sequence[Family]]) -> bytes:
    """Prometheus' text of snapshots; in any thread."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    families: dict[str, Any] = {}
    for family in (family for each in snapshots for family in each):
        metric = family.metric
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        for name in metric.shown_names:
            shown = families.get(name)
            if shown is None:
                shown = families[name] = kind(name, metric.help, labels=family.labels)
            for values, figure in family.samples:
                shown.add_metric(values, figure)
            if family.overflow is not None:
                shown.add_sample(name, {OVERFLOW: "true"}, family.overflow)

    class Snapshot(Collector):
        def collect(self) -> Any:
            return families.values()

    return bytes(generate_latest(Snapshot()))


def health_page(brokers: "Sequence[Broker]") -> tuple[int, bytes]:
    """HTTP status and JSON of /health; a process without brokers is well."""
    return _page([health(broker) for broker in brokers])


def ready_page(brokers: "Sequence[Broker]") -> tuple[int, bytes]:
    """HTTP status and JSON of /ready."""
    return _page([readiness(broker) for broker in brokers])


def _page(found: Sequence[Health]) -> tuple[int, bytes]:
    ok = all(each.ok for each in found)
    body = {
        "status": "ok" if ok else "failing",
        "reasons": [f"{each.name}: {reason}" for each in found for reason in each.reasons],
        "brokers": [each.to_json() for each in found],
    }
    return 200 if ok else 503, json_codec.dumps(body)


def metrics_routes(console: "Console") -> "list[BaseRoute]":
    """The three pages, for the console's server."""
    import asyncio

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from pocketmq.console.app import cookie_name
    from pocketmq.console.errors import ApiError

    headers = {"Cache-Control": "no-store"}

    def check_login(request: Request) -> None:
        """Raises: ApiError."""
        security = console.security
        session = security.session(request.cookies.get(cookie_name(request.scope)))
        given = _basic(request.headers.get("authorization", ""))
        if security.login_required and given is not None:
            address = request.client.host if request.client else ""
            session = security.log_in(session or security.begin(), *given, address)
        security.check_read(session or security.begin())

    async def metrics(request: Request) -> Response:
        try:
            check_login(request)
        except ApiError as error:
            ask = {"WWW-Authenticate": 'Basic realm="PocketMQ"'} if error.status == 401 else {}
            body = json_codec.dumps(error.to_json())
            return Response(body, error.status, {**headers, **ask}, JSON_TYPE)
        snapshots = [snapshot(broker) for broker in console.here]
        # Text of many thousand samples takes its time, and needs nothing of the loop.
        text = await asyncio.get_running_loop().run_in_executor(None, to_text, snapshots)
        return Response(text, headers={**headers, "Content-Type": CONTENT_TYPE})

    async def health_(request: Request) -> Response:
        status, body = health_page(console.here)
        return Response(body, status, headers, JSON_TYPE)

    async def ready(request: Request) -> Response:
        status, body = ready_page(console.here)
        return Response(body, status, headers, JSON_TYPE)

    return [Route("/metrics", metrics), Route("/health", health_), Route("/ready", ready)]


def _basic(header: str) -> tuple[str, str] | None:
    """User and password of an Authorization header; None when it has none."""
    kind, _, text = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
