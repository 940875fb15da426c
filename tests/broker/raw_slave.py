"""A slave of a few lines: what it reports and what it is sent, over a real socket, nothing hidden."""

import asyncio
from typing import Self

from pocketmq.broker.broker import Broker
from pocketmq.broker.ha.proof import derived_key, proof
from pocketmq.broker.ha.wire import HEAD_SIZE, report
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.serving import Peer

WAIT_MS = 15_000


async def ticket(peer: Peer, address: str, account: str, secret: str) -> int:
    """A ticket for the port for slaves, asked over `peer` by one who knows the secret."""
    ext = {"account": account, "nonce": "00ff", "address": address}
    shown = (await peer.ask(PocketRequestCode.INTRODUCE, ext)).ext or {}
    ext["challenge"] = shown["challenge"]
    words = (account, "00ff", shown["challenge"], shown["haAddress"])
    ext["proof"] = proof(derived_key(account, secret), "slave", words)
    answer = await peer.ask(PocketRequestCode.FOLLOW, ext)
    assert answer.code == 0, answer.remark
    return int((answer.ext or {})["ticket"])


class RawSlave:
    """Reports what it is told to; `offset` is where what it was sent ends, `data` is all of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.offset = -1
        self.data = bytearray()

    @classmethod
    async def at(cls, broker: Broker, **how: int) -> Self:
        host, port = "127.0.0.1", broker.config.ha_listen_port
        return cls(*await asyncio.open_connection(host, port, **how))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def report(self, offset: int) -> None:
        self.writer.write(report(offset))

    async def slice(self) -> tuple[int, bytes]:
        """The next slice, or sign of life. Raises: TimeoutError, IncompleteReadError."""
        async with asyncio.timeout(WAIT_MS / 1000):
            head = await self._reader.readexactly(HEAD_SIZE)
            offset = int.from_bytes(head[:8], "big", signed=True)
            return offset, await self._reader.readexactly(int.from_bytes(head[8:], "big"))

    async def take(self, end: int) -> bytes:
        """What is sent up to `end`, without a hole. Returns: all of it since the connection began."""
        while self.offset < end:
            offset, data = await self.slice()
            if not data:
                continue
            assert self.offset in (-1, offset)
            self.offset = offset + len(data)
            self.data += data
        assert self.offset == end
        return bytes(self.data)

    async def ended(self) -> bool:
        """Wait until the master closes the connection."""
        async with asyncio.timeout(WAIT_MS / 1000):
            try:
                while await self._reader.read(65_536):
                    pass
            except ConnectionError:
                pass
            return True
