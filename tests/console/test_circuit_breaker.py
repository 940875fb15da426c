"""CircuitBreaker, before servers that are silent, gone, or answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pocketmq.console.circuit_breaker import OPEN_MS, CircuitBreaker
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectFailed, RequestTimeout
from pocketmq.remoting.transport.client import RemotingClient
from tests.broker.serving import serving

USUAL_MS = 100


def asked() -> RemotingCommand:
    return RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO))


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """A server that takes connections and says nothing."""
    closing = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"{host}:{port}"
        closing.set()


async def test_after_one_time_out_calls_fail_at_once_for_a_while() -> None:
    """Overview: a broker that hangs costs a page one time-out."""
    clock = ManualClock()
    async with silent() as address, RemotingClient({}, SystemClock()) as inner:
        breaker = CircuitBreaker(inner, clock, USUAL_MS)
        # A call that may take long says nothing about the broker.
        with pytest.raises(RequestTimeout):
            await breaker.invoke(address, asked(), USUAL_MS + 1)
        with pytest.raises(RequestTimeout):
            await breaker.invoke(address, asked(), USUAL_MS)
        with pytest.raises(ConnectFailed, match="a moment ago"):
            await breaker.invoke(address, asked(), USUAL_MS)
        clock.advance_ms(OPEN_MS)
        with pytest.raises(RequestTimeout):
            await breaker.invoke(address, asked(), USUAL_MS)


async def test_the_breaker_opens_only_for_the_silent_address(
    tmp_path: Path,
) -> None:
    """Overview: the rest of the cluster keeps serving."""
    clock = ManualClock()
    async with serving(tmp_path) as broker, RemotingClient({}, SystemClock()) as inner:
        breaker = CircuitBreaker(inner, clock, 60_000)
        with pytest.raises(ConnectFailed):
            await breaker.invoke("127.0.0.1:1", asked(), 60_000)
        for _ in range(2):
            answer = await breaker.invoke(broker.listen_address, asked(), 60_000)
            assert answer.code == 0
