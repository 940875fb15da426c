"""A server and its clients over a loopback socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.command import RemotingCommand, encode
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.server import RemotingServer

ECHO, SLOW, BROKEN, ASK_BACK, LARGE, LONG, HOW_FAR = range(1, 8)


class Peer:
    """A server whose handlers tell what a test wants to see."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.seen: list[RemotingCommand] = []
        self.handlers: dict[int, Handler] = {
            ECHO: self.echo,
            SLOW: self.slow,
            BROKEN: self.broken,
            ASK_BACK: self.ask_back,
            LARGE: self.large,
        }

    def echo(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.seen.append(request)
        return request.answer(0, None, request.ext, request.body)

    async def slow(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        await self.release.wait()
        return request.answer(0, "slow")

    def broken(self, request: RemotingCommand, connection: Connection) -> None:
        raise LookupError("nothing here")

    async def ask_back(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        answer = await connection.invoke(RemotingCommand(40, {"q": "?"}), 5_000)
        return request.answer(0, answer.remark)

    def large(self, request: RemotingCommand, connection: Connection) -> list[bytes | memoryview]:
        body = [memoryview(b"x" * 300_000), memoryview(b"y" * 300_000)]
        head = encode(request.answer(0))
        total = int.from_bytes(head[:4], "big") + 600_000
        return [total.to_bytes(4, "big") + head[4:], *body]


@asynccontextmanager
async def running(
    peer: Peer, clock: ManualClock, **options: object
) -> AsyncIterator[tuple[RemotingServer, str]]:
    async with RemotingServer(peer.handlers, clock, **options) as server:  # type: ignore[arg-type]
        host, port = await server.listen("127.0.0.1", 0)
        yield server, f"{host}:{port}"


def client(**options: object) -> RemotingClient:
    return RemotingClient(
        {40: lambda request, connection: request.answer(0, "here")},
        ManualClock(),
        **options,  # type: ignore[arg-type]
    )
