"""MetricsPort: /metrics, /health and /ready of brokers on a separate port (metricsExporterType=PROM).

    async with MetricsPort(config, "127.0.0.1", [broker]) as port:
        port.address                                             # 127.0.0.1:5557

HTTP/1.1 as far as a collector needs it: GET and HEAD, one answer per request, the connection stays open. No
starlette: a broker that has only this port stays small. Other requests are answered, and the connection
closed.
"""

import asyncio
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from pocketmq.broker.figures.metrics import snapshot_in_pieces
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.metrics.page import (
    CONTENT_TYPE,
    JSON_TYPE,
    health_page,
    ready_page,
    to_text,
)
from pocketmq.console.slow_clients import WHOLE_WITHIN_S, SlowClients

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

log = logging.getLogger(__name__)

_HEAD_SIZE_MAX = 16_384
_IDLE_S = 120
_CONNECTIONS_MAX = 64


class MetricsPort:
    """Serves while it is entered. address: `ip:port`."""

    address: str

    def __init__(self, config: MetricsConfig, host: str, brokers: "Sequence[Broker]") -> None:
        """host: where to listen when the settings do not say."""
        self._config = config
        self._host = config.prom_exporter_host or host
        self._brokers = brokers
        self._connections: set[asyncio.Task[None]] = set()
        self._half = SlowClients(_CONNECTIONS_MAX)

    async def __aenter__(self) -> Self:
        """Listen. Raises: OSError (address in use)."""
        self._server = await asyncio.start_server(
            self._connected,
            self._host,
            self._config.prom_exporter_port,
            limit=_HEAD_SIZE_MAX,
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.debug("metrics are served at http://%s/metrics", self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; the server created this task, and leaving cancels it."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The peer closed or timed out, or the server is stopping: no peer reads an answer.
            pass
        finally:
            self._connections.discard(task)
            self._half.end(task)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; False if the connection is to be closed."""
        task = asyncio.current_task()
        assert task is not None
        self._half.begin(task, task.cancel)
        async with asyncio.timeout(_IDLE_S):
            head = await reader.readexactly(1)
        async with asyncio.timeout(WHOLE_WITHIN_S):
            try:
                head += await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                head = b""
        self._half.end(task)
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            status, kind, body = HTTPStatus.BAD_REQUEST, JSON_TYPE, b"{}"
            keep = False
        else:
            method, target, version = words
            path = target.partition(b"?")[0].decode("latin-1")
            status, kind, body = await self._page(method, path)
            # A request with a body is no request of a collector: its body must not be read as the next.
            lower = head.lower()
            keep = (
                version == b"HTTP/1.1"
                and method in (b"GET", b"HEAD")
                and b"\r\nconnection: close" not in lower
                and b"\r\ncontent-length:" not in lower
                and b"\r\ntransfer-encoding:" not in lower
            )
        answer = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keep else 'close'}",
        ]
        writer.write("\r\n".join(answer).encode("latin-1") + b"\r\n\r\n")
        if words[0] != b"HEAD":
            writer.write(body)
        await writer.drain()
        return keep

    async def _page(self, method: bytes, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body."""
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, JSON_TYPE, b"{}"
        if path in ("/metrics", "/"):
            limit = self._config.cardinality_limit
            snapshots = [await snapshot_in_pieces(broker, limit) for broker in self._brokers]
            loop = asyncio.get_running_loop()
            return (
                HTTPStatus.OK,
                CONTENT_TYPE,
                await loop.run_in_executor(None, to_text, snapshots),
            )
        if path in ("/health", "/ready"):
            page = health_page if path == "/health" else ready_page
            status, body = page(self._brokers)
            return HTTPStatus(status), JSON_TYPE, body
        return HTTPStatus.NOT_FOUND, JSON_TYPE, b'{"pages":["/metrics","/health","/ready"]}'
