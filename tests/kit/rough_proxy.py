"""A TCP proxy whose network can be made bad while it runs: cut, stalled, late, in pieces."""

import asyncio
import random
from types import TracebackType
from typing import Self


class RoughProxy:
    """Listens on 127.0.0.1 and forwards to 127.0.0.1:`target`, as the settings say at each moment.

    stalled: nothing goes through, and neither end is told. delay_s: so late is each piece. piece_max: pieces
    are at most so long, of random sizes; 0: as they come. passed: so many bytes went through.
    """

    def __init__(self, target: int, chance: random.Random) -> None:
        self.target = target
        self._chance = chance
        self.port = 0
        self.passed = 0
        self.heal()
        self._writers: set[asyncio.StreamWriter] = set()
        self._running: set[asyncio.Task[None]] = set()

    def heal(self) -> None:
        """A good network again."""
        self.stalled = False
        self.delay_s = 0.0
        self.piece_max = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def cut(self) -> None:
        """End every connection, wherever in a frame it is."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self.join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            writer.transport.abort()

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        both = {writer, far_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self.forward(reader, far_writer, both))
                ways.create_task(self.forward(far_reader, writer, both))
        finally:
            self._writers -= both
            far_writer.transport.abort()

    async def forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
    ) -> None:
        """Pass on what one end says, until either has left."""
        try:
            while True:
                size = self._chance.randint(1, self.piece_max) if self.piece_max else 65_536
                data = await reader.read(size)
                while self.stalled:
                    await asyncio.sleep(0.01)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if not data:
                    return
                writer.write(data)
                await writer.drain()
                self.passed += len(data)
        except OSError:
            pass
        finally:
            for each in both:
                each.transport.abort()
