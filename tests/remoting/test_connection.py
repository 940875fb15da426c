"""The transport between two real ends of a loopback socket."""

import asyncio
import gc
import weakref
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from typing import Any

import pytest

from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.command import RemotingCommand, SerializeType, decode, encode
from pocketmq.remoting.errors import (
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    TooManyRequests,
)
from pocketmq.remoting.frames import FrameDecoder
from pocketmq.remoting.transport import connection
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection
from pocketmq.remoting.transport.limits import ConnectionLimits
from pocketmq.remoting.transport.outbox import PIECE_SIZE
from pocketmq.remoting.transport.peer import TURN_MS
from pocketmq.remoting.transport.server import RemotingServer
from pocketmq.remoting.transport.tls import ServerTls, TlsConfig, client_context
from tests.kit.waiting import until_async
from tests.remoting.connection_peer import (
    ASK_BACK,
    BROKEN,
    ECHO,
    LARGE,
    SLOW,
    Peer,
    client,
    running,
)

_PATIENCE_S = 60


async def test_an_answer_uses_the_encoding_of_its_request() -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        for encoding in SerializeType:
            answer = await remoting.invoke(
                address, RemotingCommand(ECHO, {"a": "b"}, b"body", encoding=encoding)
            )
            assert (answer.encoding, answer.ext, bytes(answer.body)) == (
                encoding,
                {"a": "b"},
                b"body",
            )


async def test_a_slow_answer_holds_up_nobody() -> None:
    """wire.md trap 10."""
    peer = Peer()
    async with running(peer, ManualClock()) as (_, address), client() as remoting:
        connection = await remoting.connection(address)
        slow = connection.begin(RemotingCommand(SLOW))
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0
        assert not slow.done()
        peer.release.set()
        assert (await slow).remark == "slow"


async def test_the_server_may_ask_the_client() -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        assert (await remoting.invoke(address, RemotingCommand(ASK_BACK))).remark == "here"


async def test_an_exception_in_a_handler_is_an_answer() -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        answer = await remoting.invoke(address, RemotingCommand(BROKEN))
        assert (answer.code, answer.remark) == (1, "LookupError: nothing here")
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0


async def test_an_unknown_code_gets_rocketmqs_answer() -> None:
    """wire.md 1.7: code 3 with a leading blank in the remark."""
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        answer = await remoting.invoke(address, RemotingCommand(12345))
        assert (answer.code, answer.remark) == (3, " request type 12345 not supported")


async def test_a_oneway_request_is_not_answered() -> None:
    peer = Peer()
    async with running(peer, ManualClock()) as (_, address), client() as remoting:
        await remoting.oneway(address, RemotingCommand(ECHO, {"n": "1"}))
        await remoting.invoke(address, RemotingCommand(ECHO, {"n": "2"}))
        assert [request.ext for request in peer.seen] == [{"n": "1"}, {"n": "2"}]
        assert peer.seen[0].is_oneway


async def test_requests_are_done_though_earlier_answers_are_unread() -> None:
    """A commit is one-way: its consumer does not send it again."""
    peer = Peer()
    async with running(peer, ManualClock()) as (server, address):
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        commit = RemotingCommand(ECHO, {"n": "1"}, flag=2)
        writer.write(encode(RemotingCommand(LARGE)) * 40 + encode(commit))
        await until_async(lambda: any(c._outbox.is_blocked for c in server.connections))
        assert peer.seen == []
        writer.transport.abort()
        await until_async(lambda: not server.connections)
        assert [request.ext for request in peer.seen] == [{"n": "1"}]


async def test_buffers_of_one_frame_arrive_whole() -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        answers = await asyncio.gather(
            *(remoting.invoke(address, RemotingCommand(LARGE), 20_000) for _ in range(5))
        )
        assert {bytes(answer.body) for answer in answers} == {b"x" * 300_000 + b"y" * 300_000}


async def test_a_time_out_names_peer_and_request() -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        with pytest.raises(RequestTimeout, match=f"{address} to request 2 within 5 ms"):
            await remoting.invoke(address, RemotingCommand(SLOW), 5)


async def test_requests_in_flight_learn_of_a_lost_connection() -> None:
    peer = Peer()
    async with running(peer, ManualClock()) as (server, address), client() as remoting:
        connection = await remoting.connection(address)
        waiting = connection.begin(RemotingCommand(SLOW))
        await until_async(lambda: bool(server.connections))
        for other in list(server.connections):
            other.abort()
        with pytest.raises(ConnectionLost, match="before the answer came"):
            await waiting
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0
        peer.release.set()


async def test_a_refused_connection_says_where() -> None:
    """Whatever a route says: an invalid port ended the client's other connections."""
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        for nowhere in (
            "127.0.0.1:1",
            "127.0.0.1:99999",
            "localhost:" + "9" * 30,
            "127.0.0.1:-1",
            "x",
        ):
            with pytest.raises(ConnectFailed, match=nowhere):
                await remoting.invoke(nowhere, RemotingCommand(ECHO))
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0


async def test_a_connect_during_the_close_gets_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nobody_answers(address: str) -> None:
        await asyncio.get_running_loop().create_future()

    async def ask(remoting: RemotingClient) -> str:
        try:
            await remoting.invoke("127.0.0.1:1", RemotingCommand(ECHO))
        except (ConnectFailed, asyncio.CancelledError) as error:
            return type(error).__name__
        return ""

    async with asyncio.TaskGroup() as tasks, client() as remoting:
        monkeypatch.setattr(remoting, "_connect", nobody_answers)
        asking = tasks.create_task(ask(remoting))
        await asyncio.sleep(0.01)
    assert asking.result() == "ConnectFailed"


async def test_requests_in_flight_are_bounded() -> None:
    peer = Peer()
    async with running(peer, ManualClock()) as (_, address):
        loop = asyncio.get_running_loop()
        host, port = address.split(":")
        _, connection = await loop.create_connection(
            lambda: Connection({}, spawn=print, monotonic_ms=lambda: 0, in_flight_max=2),
            host,
            int(port),
        )
        futures = [connection.begin(RemotingCommand(SLOW)) for _ in range(2)]
        with pytest.raises(TooManyRequests):
            connection.begin(RemotingCommand(SLOW))
        peer.release.set()
        await asyncio.gather(*futures)
        connection.close()


async def test_an_unknown_header_encoding_is_answered_in_order() -> None:
    """As PocketMQ's own MSGPACK headers were, until November 2026."""
    async with running(Peer(), ManualClock()) as (_, address):
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        frame = bytearray(encode(RemotingCommand(ECHO, {"a": "1"})))
        frame[4] = 77
        writer.write(encode(RemotingCommand(ECHO, opaque=5)) + frame)
        async with asyncio.timeout(_PATIENCE_S):
            first, answer = (decode(each) for each in FrameDecoder().feed(await reader.read()))
        assert (first.code, first.opaque) == (0, 5)
        assert (answer.code, answer.is_response) == (1, True)
        assert (
            answer.remark == "unknown header encoding 77: send headers as JSON (0) or ROCKETMQ (1)"
        )
        writer.close()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\x01x", b"\x16\x03"]
)
async def test_garbage_closes_its_connection_and_disturbs_no_other(garbage: bytes) -> None:
    async with running(Peer(), ManualClock()) as (_, address), client() as remoting:
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(garbage)
        async with asyncio.timeout(5):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
        assert (await remoting.invoke(address, RemotingCommand(ECHO))).code == 0


async def test_one_byte_at_a_time_is_a_request_too() -> None:
    async with running(Peer(), ManualClock()) as (_, address):
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for byte in encode(RemotingCommand(ECHO, {"a": "b"}, b"x", opaque=9)):
            writer.write(bytes([byte]))
            await writer.drain()
        async with asyncio.timeout(5):
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = decode(await reader.readexactly(size))
        assert (answer.opaque, bytes(answer.body)) == (9, b"x")
        writer.close()


async def test_idle_and_stuck_connections_are_closed_after_120_s() -> None:
    """wire.md 1.7; a peer that stops within a frame cannot stay by dripping bytes."""
    clock = ManualClock()
    async with running(Peer(), clock) as (server, address):
        host, port = address.split(":")
        idle = await asyncio.open_connection(host, int(port))
        stuck = await asyncio.open_connection(host, int(port))
        stuck[1].write(b"\0\0")
        await until_async(
            lambda: any(c.partial_since_ms or c._decoder.pending for c in server.connections)
        )
        clock.advance_ms(119_000)
        stuck[1].write(b"\0")
        await until_async(lambda: any(c._decoder.pending == 3 for c in server.connections))
        assert server.close_idle() == 0
        clock.advance_ms(2_000)
        assert server.close_idle() >= 1
        await until_async(lambda: len(server.connections) <= 1)
        for _, writer in (idle, stuck):
            writer.close()


class _Writes:
    """A transport that keeps what is written, write by write."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, data: bytes) -> None:
        self.sizes.append(len(data))

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...


async def test_writes_of_one_turn_leave_in_pieces_a_single_at_once() -> None:
    """The broker works on the first while the client makes the next."""
    loop = asyncio.get_running_loop()
    writes: Any = _Writes()
    connection = Connection({}, spawn=lambda run: None, monotonic_ms=lambda: 0)
    connection.connection_made(writes)

    def post(size: int) -> None:
        connection.post(connection.take_opaque(), b"x" * size, loop.create_future())

    post(100)
    assert writes.sizes == [100]
    for _ in range(6):
        post(PIECE_SIZE // 2)
    assert writes.sizes == [100, PIECE_SIZE // 2 * 3, PIECE_SIZE // 2 * 3]
    post(200)
    assert sum(writes.sizes[3:]) == 0
    await asyncio.sleep(0)
    assert writes.sizes[3:] == [200]


@pytest.mark.skipif(
    str(connection.__file__).endswith(tuple(EXTENSION_SUFFIXES)),
    reason="mypyc frees an object without clearing the weak references to it, and this test has one",
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_closed_connection_needs_no_garbage_collection(tls: bool) -> None:
    """A server's collector leaves old objects alone, so what is a cycle then is there for good."""
    clock = ManualClock()
    how: dict[str, Any] = {"tls": ServerTls(TlsConfig())} if tls else {}
    gc.disable()
    try:
        async with running(Peer(), clock, **how) as (server, address):
            client = RemotingClient({}, clock, tls=client_context() if tls else None)
            async with client:
                await client.invoke(address, RemotingCommand(ECHO), 5_000)
                (served,) = map(weakref.ref, server.connections)
            await until_async(lambda: served() is None)
    finally:
        gc.enable()


async def test_a_crowd_that_closes_at_once_is_closed_in_turns() -> None:
    """8,000 of them held up the others for as long as it takes to close 8,000 sockets."""

    class Slow(ManualClock):
        """A turn of the loop has room for one connection."""

        def monotonic_ms(self) -> int:
            self.advance_ms(TURN_MS // 2 + 1)
            return super().monotonic_ms()

    async with RemotingServer(Peer().handlers, Slow()) as server:
        host, port = await server.listen("127.0.0.1")
        ends = [await asyncio.open_connection(host, port) for _ in range(20)]
        await until_async(lambda: len(server.connections) == len(ends))
        for _, writer in ends:
            writer.write(encode(RemotingCommand(ECHO, {"q": "last"})))
            writer.write_eof()
        there = list(server.connections)
        closed = [0]
        async with asyncio.timeout(_PATIENCE_S):
            while server.connections:
                await asyncio.sleep(0)
                closed.append(sum(each.closed for each in there))
        assert max(after - before for before, after in pairwise(closed)) <= len(ends) // 4
        for reader, writer in ends:
            answer = await reader.read()
            assert int.from_bytes(answer[:4], "big") == len(answer) - 4 > 0
            writer.close()


async def test_a_connection_with_many_waiting_requests_is_not_read() -> None:
    """Whatever the coroutines wait for: others are served meanwhile, and all is answered in the end."""
    peer = Peer()
    limits = ConnectionLimits(kept_size_max=4 << 20)
    async with running(peer, ManualClock(), limits=limits) as (server, address):
        async with client() as remoting, client() as other:
            calls = [
                asyncio.ensure_future(  # noqa: TID251
                    remoting.invoke(address, RemotingCommand(SLOW, body=bytes(500_000)), 600_000)
                )
                for _ in range(40)
            ]
            await until_async(lambda: server.shared_limits.kept_size > 2 << 20)
            for _ in range(3):
                await other.invoke(address, RemotingCommand(ECHO, body=b"x"))
            # What one read brought is begun still.
            assert server.shared_limits.kept_size < 4 << 20
            peer.release.set()
            answers = await asyncio.gather(*calls)
            assert {answer.remark for answer in answers} == {"slow"}
            assert server.shared_limits.kept_size == 0
