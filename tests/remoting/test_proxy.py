"""Requests are passed to another server, and clients stay connected."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pocketmq.remoting import fastjson
from pocketmq.remoting.clock import ManualClock, SystemClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.proxy import HELD_MS, LEFT_MS, ProxiedConnection, Proxy
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig, client_context
from tests.kit.waiting import until_async as until

_C = RequestCode
HELD = 999


async def listening(server: RemotingServer) -> str:
    host, port = await server.listen("127.0.0.1")
    return f"{host}:{port}"


class Site:
    """Two servers, and a client of the first; each answers with its name and holds what it is to hold."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: dict[str, list[int]] = {"here": [], "there": []}
        self.holds = False
        self.tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        clock = SystemClock()
        async with (
            self._server("here") as self.here,
            self._server("there") as self.there,
            RemotingClient({}, clock, tls=self.tls) as self.client,
        ):
            self.at_here = await listening(self.here)
            self.at_there = await listening(self.there)
            self.proxy = Proxy(self.here, self.at_there, self.clock.monotonic_ms)
            try:
                yield
            finally:
                self.proxy.close()

    def _server(self, name: str) -> RemotingServer:
        def answer(request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
            self.asked[name].append(request.code)
            if self.holds and request.code in (HELD, _C.PULL_MESSAGE):
                return None
            found = request.answer(ResponseCode.SUCCESS, name)
            found.body = request.body
            return found

        tls = ServerTls(TlsConfig()) if name == "here" else None
        return RemotingServer({}, SystemClock(), default_handler=answer, tls=tls)

    async def ask(self, code: int = 1, body: bytes = b"") -> RemotingCommand:
        return await self.client.invoke(self.at_here, RemotingCommand(code, {}, body), 60_000)

    def heartbeat(self) -> bytes:
        return fastjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"}]})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    async with made.running():
        yield made


async def test_requests_go_on_and_come_back_over_one_connection(site: Site) -> None:
    site.proxy.open()
    large = bytes(range(256)) * 4_000
    answers = await asyncio.gather(*(site.ask(number, large) for number in range(1, 9)))
    assert {(each.remark, bytes(each.body) == large) for each in answers} == {("there", True)}
    (connection,) = site.proxy.passed
    site.proxy.serve_here()
    assert (await site.ask()).remark == "here"
    assert not site.proxy.passed
    assert len(site.here.connections) == 1
    assert len(site.client.addresses) == 1
    assert connection is not None


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_move_takes_heartbeat_and_held_pull_along(site: Site, where: str) -> None:
    site.proxy.open()
    site.holds = True
    await site.ask(_C.HEART_BEAT, site.heartbeat())
    async with asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(site.ask(_C.PULL_MESSAGE))
        await until(lambda: _C.PULL_MESSAGE in site.asked["there"])
        site.proxy.hold()
        late = tasks.create_task(site.ask(7))
        await until(lambda: any(each.held for each in site.proxy.passed))
        assert site.proxy.is_quiet
        site.holds = False
        before = len(site.asked["there"])
        if where == "here":
            site.proxy.serve_here()
        else:
            second = await asyncio.get_running_loop().create_server(
                site.here.make_connection, "127.0.0.1", 0
            )
            host, port = second.sockets[0].getsockname()
            site.proxy.move(f"{host}:{port}")
        assert (await pull).remark == (await late).remark == "here"
        assert site.asked["here"] == [_C.HEART_BEAT, _C.PULL_MESSAGE, 7]
        assert len(site.asked["there"]) == before
        if where != "here":
            second.close()


async def test_a_move_with_an_open_request_closes_the_connection(
    site: Site,
) -> None:
    """It may be done or not; it is not asked twice."""
    site.proxy.open()
    site.holds = True
    async with asyncio.TaskGroup() as tasks:

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await site.ask(HELD)

        tasks.create_task(ask())
        await until(lambda: site.asked["there"] == [HELD])
        assert not site.proxy.is_quiet
        site.proxy.serve_here()
    assert site.asked["here"] == []


async def test_a_send_held_too_long_is_refused_and_not_stored(site: Site) -> None:
    site.proxy.open()
    await site.ask()
    site.proxy.hold()
    async with asyncio.TaskGroup() as tasks:
        sent = tasks.create_task(site.ask(_C.SEND_MESSAGE_V2))
        asked = tasks.create_task(site.ask(7))
        await until(lambda: sum(len(each.held) for each in site.proxy.passed) == 2)
        site.proxy.tick()
        assert not sent.done()
        site.clock.advance_ms(HELD_MS + 1)
        site.proxy.tick()
        assert (await sent).code == ResponseCode.SERVICE_NOT_AVAILABLE
        site.proxy.go_on()
        assert (await asked).remark == "there"
    assert _C.SEND_MESSAGE_V2 not in site.asked["there"]


async def test_a_client_that_is_known_there_does_not_beat_twice(site: Site) -> None:
    """Its own connection counts as one member, and this one would as another."""
    known = True

    async def is_known(heartbeat: RemotingCommand) -> bool:
        return known

    site.proxy.is_known = is_known
    site.proxy.open()
    assert (await site.ask(_C.HEART_BEAT, site.heartbeat())).code == ResponseCode.SUCCESS
    assert site.asked["there"] == []
    known = False
    await site.ask(_C.HEART_BEAT, site.heartbeat())
    assert site.asked["there"] == [_C.HEART_BEAT]


async def test_a_connection_that_its_client_has_left_behind_is_closed(site: Site) -> None:
    site.proxy.open()
    await site.ask()
    site.proxy.close_left()
    assert len(site.proxy.passed) == 1
    site.clock.advance_ms(LEFT_MS + 1)
    site.proxy.close_left()
    await until(lambda: not site.proxy.passed)


async def test_nobody_there_ends_the_connection(site: Site) -> None:
    site.proxy.target = "127.0.0.1:1"
    site.proxy.open()
    with pytest.raises(ConnectionLost):
        await site.ask()
    await until(lambda: not site.proxy.passed)


async def test_an_answer_that_is_none_ends_the_connection(site: Site) -> None:
    """Else the client stayed connected, and all that it asked waited for good."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\0\0\0\3abc")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        site.proxy.target = "{}:{}".format(*other.sockets[0].getsockname())
        site.proxy.open()
        with pytest.raises(ConnectionLost):
            await site.ask()
        await until(lambda: not site.proxy.passed)


async def test_a_broker_that_does_not_read_stops_the_client(site: Site) -> None:
    """What was held goes first; what comes after it is not read before the other broker takes it."""
    deaf = asyncio.Event()

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await deaf.wait()
        writer.transport.abort()

    size = 1 << 20
    frame = encode(RemotingCommand(_C.PULL_MESSAGE, {}, bytes(size)))
    async with await asyncio.start_server(never_read, "127.0.0.1", 0) as other:
        site.proxy.target = "{}:{}".format(*other.sockets[0].getsockname())
        site.proxy.open()
        site.proxy.hold()
        host, _, port = site.at_here.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64:
                async with asyncio.timeout(0.5):
                    writer.write(frame)
                    await writer.drain()
                sent += 1
                if sent == 10:
                    await until(lambda: any(len(each.held) > 7 for each in site.proxy.passed))
                    site.proxy.go_on()
        assert 10 <= sent < 64
        writer.transport.abort()
        deaf.set()
        await until(lambda: not site.proxy.passed)


async def test_a_broker_that_never_answers_is_not_asked_without_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.remoting.transport.proxy._OPEN_MAX", 100)
    site.proxy.open()
    site.holds = True
    await site.ask()
    (connection,) = site.proxy.passed
    asked = (site.ask(HELD) for _ in range(101))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in answers} == {ConnectionLost}
    assert connection not in site.proxy.passed


async def test_a_tls_client_is_forwarded_and_reconnects_afterwards() -> None:
    """The other server speaks no TLS."""
    made = Site()
    made.tls = client_context()
    async with made.running():
        made.proxy.open()
        large = bytes(300_000)
        assert (await made.ask(body=large)).body == large
        assert made.asked == {"here": [], "there": [1]}
        made.proxy.hold()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(made.ask(2))
            await until(lambda: any(each.held for each in made.proxy.passed))
            made.proxy.go_on()
        assert asking.result().remark == "there"
        connection = made.client._connections[made.at_here]
        made.proxy.serve_here()
        await until(lambda: connection.closed)
        assert (await made.ask(3)).remark == "here"


def test_what_is_held_costs_the_same_however_much_it_is() -> None:
    """A client in the middle of a burst: each frame was counted together with all before it."""
    proxy = Proxy(RemotingServer({}, SystemClock()), "", SystemClock().monotonic_ms)
    proxy.hold()
    passed = ProxiedConnection(proxy)
    frame = encode(RemotingCommand(_C.SEND_MESSAGE, {}, b"x", flag=2))

    def cost(count: int) -> float:
        began = time.process_time()
        for _ in range(count):
            passed.data_received(frame)
        return time.process_time() - began

    first = cost(2_000)
    cost(16_000)
    assert cost(2_000) < 5 * first + 0.1
    passed.refuse_held(proxy.monotonic_ms() + 1)
    assert (passed.held, passed.held_size) == ([], 0)
