"""/metrics, /health and /ready: figures for Prometheus, and checks for supervisors and load balancers.

    GET /metrics   Prometheus' text of every broker of this process (pocketmq.broker.figures.metrics) and
                   of those of other processes that it answers for
    GET /health    200 while every such broker is healthy, else 503; JSON with the reasons
    GET /ready     the same for "serves clients"

/health and /ready are public. If the console has a login, /metrics requires it too: the session of a browser,
or HTTP's basic authentication, which Prometheus calls basic_auth. prometheus-client is imported on the first
request for figures.
"""

import base64
import binascii
import logging
import urllib.request
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pocketmq.broker.figures.metric import Spread
from pocketmq.broker.figures.metrics import (
    CARDINALITY_LIMIT,
    OVERFLOW,
    Family,
    snapshot,
    snapshot_in_pieces,
)
from pocketmq.broker.health import Health
from pocketmq.broker.readiness import health, readiness
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from pocketmq.broker.broker import Broker
    from pocketmq.console.remote_broker import RemoteBroker
    from pocketmq.console.state import Console

log = logging.getLogger(__name__)

_FETCH_S = 5
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE = "application/json"


def render(*brokers: "Broker", cardinality_limit: int = CARDINALITY_LIMIT) -> bytes:
    """Return Prometheus' text of one or more brokers. Call in their event loop."""
    return to_text([snapshot(broker, cardinality_limit) for broker in brokers])


def to_text(snapshots: Sequence[list[Family]]) -> bytes:
    """Return Prometheus' text of snapshots; in any thread.

    Empties the snapshots, one family after the other: their many objects are freed here, and not by the event
    loop, and those that prometheus-client makes of a family are freed before the next.
    """
    from prometheus_client import core
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    kinds = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    families: dict[str, list[Family]] = {}
    for each in snapshots:
        while each:
            families.setdefault(each[-1].metric.name, []).append(each.pop())

    def shown(name: str, found: Sequence[Family]) -> Any:
        metric = found[0].metric
        kind: Any = kinds[metric.kind]
        result = kind(name, metric.help, labels=found[0].labels)
        for family in found:
            for values, figure in family.samples:
                result.add_metric([*map(_label, values)], figure)
            for spread in family.spreads:
                result.add_metric([*map(_label, spread.values)], _buckets(spread), spread.sum)
            if family.overflow is not None:
                result.add_sample(name, {OVERFLOW: "true"}, family.overflow)
        return result

    class Snapshot(Collector):
        def collect(self) -> Any:
            for found in (families.pop(name) for name in reversed([*families])):
                for name in found[0].metric.shown_names:
                    yield shown(name, found)

    return bytes(generate_latest(Snapshot()))


def _label(value: str) -> str:
    r"""Return a label's value with escapes for what is not printed: some readers end a line there.

    >>> _label("orders \u00e9"), _label("a\r# HELP b\u2028c")
    ('orders \xe9', 'a\\r# HELP b\\u2028c')
    """
    if value.isprintable():
        return value
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in value
    )


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    """Return bounds and cumulative counts, as in Prometheus."""
    names = [*(str(float(bound)) for bound in spread.bounds), "+Inf"]
    return list(zip(names, accumulate(spread.counts), strict=True))


def merged(texts: Sequence[bytes]) -> bytes:
    """Merge the texts of several brokers: each family once, with the samples of all.

    >>> a = b"# HELP x y\\n# TYPE x gauge\\nx 1\\n"
    >>> merged([a, a.replace(b"x 1", b"x 2")])
    b'# HELP x y\\n# TYPE x gauge\\nx 1\\nx 2\\n'
    """
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        family: list[bytes] = []
        is_new = True
        for line in text.splitlines(keepends=True):
            if line.startswith(b"# HELP "):
                name = line.split(b" ", 3)[2]
                is_new = name not in families
                family = families.setdefault(name, [])
            if is_new or not line.startswith(b"#"):
                family.append(line)
    return b"".join(line for family in families.values() for line in family)


def health_page(
    brokers: "Sequence[Broker]", elsewhere: "Sequence[RemoteBroker]" = ()
) -> tuple[int, bytes]:
    """Return HTTP status and JSON of /health; a process without brokers is healthy."""
    return _page([*map(health, brokers), *(each.health() for each in elsewhere)])


def ready_page(
    brokers: "Sequence[Broker]", elsewhere: "Sequence[RemoteBroker]" = ()
) -> tuple[int, bytes]:
    """Return HTTP status and JSON of /ready."""
    return _page([*map(readiness, brokers), *(each.health() for each in elsewhere)])


def _page(found: Sequence[Health]) -> tuple[int, bytes]:
    ok = all(each.ok for each in found)
    body = {
        "status": "ok" if ok else "failing",
        "reasons": [f"{each.name}: {reason}" for each in found for reason in each.reasons],
        "brokers": [each.to_json() for each in found],
    }
    return 200 if ok else 503, json_codec.dumps(body)


def metrics_routes(console: "Console") -> "list[BaseRoute]":
    """Return the routes of the three pages, for the console's server."""
    import asyncio

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from pocketmq.console.app import cookie_name
    from pocketmq.console.errors import ApiError, api_error, not_allowed

    headers = {"Cache-Control": "no-store"}

    async def check_login(request: Request) -> None:
        """Check the login. Raises: ApiError, PocketMQError."""
        security = console.security
        session = security.session(request.cookies.get(cookie_name(request.scope)))
        given = _basic(request.headers.get("authorization", ""))
        address = request.client.host if request.client else ""
        if console.seats is not None:
            if given is not None:
                with security.attempt(address):
                    sight = await console.seats.check(*given)
            else:
                security.check_read(session or security.begin())
                sight = (await console.seats.of(session or security.begin())).sight
            if not sight.cluster:
                raise not_allowed("these figures need the action Get on the cluster")
            return
        if security.login_required and given is not None:
            session = security.log_in(session or security.begin(), *given, address)
        security.check_read(session or security.begin())

    async def metrics(request: Request) -> Response:
        try:
            await check_login(request)
        except (ApiError, PocketMQError) as failed:
            error = failed if isinstance(failed, ApiError) else api_error(failed)
            ask = {"WWW-Authenticate": 'Basic realm="PocketMQ"'} if error.status == 401 else {}
            body = json_codec.dumps(error.to_json())
            return Response(body, error.status, {**headers, **ask}, JSON_TYPE)
        snapshots = [await snapshot_in_pieces(broker) for broker in console.here]
        # Text of many thousand samples takes its time, and needs nothing of the loop.
        own = asyncio.to_thread(to_text, snapshots)
        urls = [each.metrics_url for each in console.elsewhere if each.metrics_url]
        texts = await asyncio.gather(own, *(asyncio.to_thread(_fetched, url) for url in urls))
        text = await asyncio.to_thread(merged, texts) if urls else texts[0]
        return Response(text, headers={**headers, "Content-Type": CONTENT_TYPE})

    async def health_(request: Request) -> Response:
        status, body = health_page(console.here, console.elsewhere)
        return Response(body, status, headers, JSON_TYPE)

    async def ready(request: Request) -> Response:
        status, body = ready_page(console.here, console.elsewhere)
        return Response(body, status, headers, JSON_TYPE)

    return [Route("/metrics", metrics), Route("/health", health_), Route("/ready", ready)]


def _fetched(url: str) -> bytes:
    """Return the text of another process of this machine; empty if it has just died."""
    try:
        with urllib.request.urlopen(url, timeout=_FETCH_S) as answer:
            return bytes(answer.read())
    except OSError as error:
        log.warning("cannot get the figures of a broker url=%s reason=%r", url, str(error))
        return b""


def _basic(header: str) -> tuple[str, str] | None:
    """Return user and password of an Authorization header; None if it has none."""
    kind, _, text = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None
