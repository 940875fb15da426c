"""Connections that lead nowhere, as a firewall leaves them that has lost its table: nothing says so.

What is sent over the old ones vanishes, both ways; new ones work at once. One dead connection never serves
two requests in a row, and one slow answer ends nothing that others wait for.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import ConnectionLost, RequestTimeout
from pocketmq.remoting.transport.client import IDLE_MS, RemotingClient
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.server import RemotingServer
from tests.kit.forgetful_proxy import ForgetfulProxy
from tests.kit.waiting import until_async

_PATIENCE_MS = 60_000
_SHORT_MS = 300
ECHO, HELD = 1, 2


class Peer:
    """A server that answers, and one that holds requests until `release`."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.held = 0

    def echo(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return request.answer(0, connection.peer)

    async def hold(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.held += 1
        await self.release.wait()
        return request.answer(0, connection.peer)


@asynccontextmanager
async def both(
    peer: Peer, closed: list[tuple[str, bool]] | None = None
) -> AsyncIterator[tuple[RemotingClient, ForgetfulProxy, str]]:
    clock = SystemClock()
    handlers: dict[int, Handler] = {ECHO: peer.echo, HELD: peer.hold}

    def note(address: str, silent: bool) -> None:
        if closed is not None:
            closed.append((address, silent))

    async with (
        RemotingServer(handlers, clock) as server,
        ForgetfulProxy((await server.listen("127.0.0.1", 0))[1]) as proxy,
        RemotingClient({}, clock, on_close=note) as client,
    ):
        yield client, proxy, f"127.0.0.1:{proxy.port}"


async def timed_out(request: Coroutine[Any, Any, RemotingCommand]) -> bool:
    with pytest.raises(RequestTimeout):
        await request
    return True


async def lost(request: Coroutine[Any, Any, RemotingCommand]) -> bool:
    with pytest.raises(ConnectionLost):
        await request
    return True


async def test_the_request_after_a_timeout_has_another_connection() -> None:
    closed: list[tuple[str, bool]] = []
    async with both(Peer(), closed) as (client, proxy, address):
        first = await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)
        proxy.forget()
        with pytest.raises(RequestTimeout):
            await client.invoke(address, RemotingCommand(ECHO), _SHORT_MS)
        assert closed == [(address, True)]
        second = await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)
        assert second.remark != first.remark
    assert closed == [(address, True), (address, False)]


async def test_what_waits_on_the_old_connection_ends_once_the_new_one_works() -> None:
    """A long poll, whose own time-out is far."""
    peer = Peer()
    async with both(peer) as (client, proxy, address), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lost(client.invoke(address, RemotingCommand(HELD), 600_000)))
        await until_async(lambda: peer.held == 1)
        proxy.forget()
        with pytest.raises(RequestTimeout):
            await client.invoke(address, RemotingCommand(ECHO), _SHORT_MS)
        await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)
        async with asyncio.timeout(_PATIENCE_MS / 1000):
            assert await waiting


async def test_one_slow_answer_ends_nothing_that_others_wait_for() -> None:
    """The connection lives: something came while the slow request waited."""
    peer = Peer()
    closed: list[tuple[str, bool]] = []
    async with both(peer, closed) as (client, _, address), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(client.invoke(address, RemotingCommand(HELD), 600_000))
        slow = tasks.create_task(timed_out(client.invoke(address, RemotingCommand(HELD), 1_000)))
        await until_async(lambda: peer.held == 2)
        while not slow.done():
            await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)
            await asyncio.sleep(0)
        assert slow.result()
        before = await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)
        peer.release.set()
        assert (await waiting).remark == before.remark
        assert closed == []


async def test_a_server_that_stood_still_still_answers_what_it_was_asked() -> None:
    """No other connection works either, so what waits on the first one may wait on."""
    peer = Peer()
    async with both(peer) as (client, proxy, address), asyncio.TaskGroup() as tasks:
        proxy.stalled = True
        waiting = tasks.create_task(client.invoke(address, RemotingCommand(HELD), 600_000))
        for _ in range(3):
            with pytest.raises(RequestTimeout):
                await client.invoke(address, RemotingCommand(ECHO), _SHORT_MS)
        assert not waiting.done()
        peer.release.set()
        proxy.stalled = False
        async with asyncio.timeout(_PATIENCE_MS / 1000):
            assert (await waiting).code == 0


async def test_a_connection_without_traffic_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is between the two ends may have forgotten it; one that is asked is kept."""
    monkeypatch.setattr("pocketmq.remoting.transport.client._LOOK_S", 0.01)
    peer, clock = Peer(), ManualClock()
    handlers: dict[int, Handler] = {ECHO: peer.echo, HELD: peer.hold}
    async with RemotingServer(handlers, SystemClock()) as server:
        _, port = await server.listen("127.0.0.1", 0)
        address = f"127.0.0.1:{port}"
        async with RemotingClient({}, clock) as client, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.invoke(address, RemotingCommand(HELD), 600_000))
            await until_async(lambda: peer.held == 1)
            clock.advance_ms(IDLE_MS)
            peer.release.set()
            # Asked until then: it was not closed under the request.
            assert (await waiting).code == 0
            assert client.addresses == [address]
            clock.advance_ms(IDLE_MS)
            await until_async(lambda: client.addresses == [])
            assert (await client.invoke(address, RemotingCommand(ECHO), _PATIENCE_MS)).code == 0
