"""Requests that stay incomplete: clients with complete ones are served beside hundreds of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.metrics.port import MetricsPort
from pocketmq.console.slow_clients import SlowClients
from pocketmq.console.web_server import WebServer, protocol_of

Send = Callable[[dict[str, Any]], Awaitable[None]]
HALVES = [
    b"GET /health HTTP/1.1\r\nHost: x\r\n",
    b"",
    b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n1",
]


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send
) -> None:
    """Answers 200 when the request's body is whole."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"well"})


@asynccontextmanager
async def web_server(within_s: float = 60) -> AsyncIterator[int]:
    """The console's server with that app, its limits of connections included."""
    config = uvicorn.Config(
        app,
        port=0,
        http=protocol_of(SlowClients(), within_s),
        ws="none",
        lifespan="off",
        log_config=None,
        limit_concurrency=256,
    )
    config.load()
    server = WebServer(config)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        async with asyncio.timeout(15):
            while not server.started:
                await asyncio.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True


@asynccontextmanager
async def metrics_port() -> AsyncIterator[int]:
    async with MetricsPort(MetricsConfig(prom_exporter_port=0), "127.0.0.1", ()) as port:
        yield int(port.address.rpartition(":")[2])


async def get(port: int) -> bytes:
    """The first line of the answer to a whole request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize("server", [web_server, metrics_port], ids=["console", "metrics"])
@pytest.mark.parametrize("half", HALVES, ids=["head", "nothing", "body"])
async def test_300_half_requests_keep_nobody_from_being_served(
    server: Callable[[], Any], half: bytes
) -> None:
    """The console answered 503, and the metrics port closed."""
    async with asyncio.timeout(60), server() as port:
        opened = []
        for _ in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            opened.append((reader, writer))
        for _ in range(3):
            assert b" 200 " in await get(port)
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.parametrize("half", HALVES, ids=["head", "nothing", "body"])
async def test_a_half_request_is_closed_in_time(half: bytes) -> None:
    """Also behind a whole one on the same connection."""
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    async with asyncio.timeout(30), web_server(within_s=0.2) as port:
        for before in (b"", whole):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if before:
                writer.write(before)
                assert b" 200 " in await reader.readuntil(b"well")
                half = half or b"GET"
            writer.write(half)
            try:
                assert b" 200 " not in await reader.read()
            except ConnectionError:
                pass
            writer.close()
