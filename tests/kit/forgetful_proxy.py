"""A TCP proxy that forgets its connections, as a firewall or a NAT does: nothing is closed, bytes vanish."""

import asyncio
from types import TracebackType
from typing import Self


class ForgetfulProxy:
    """Listens on 127.0.0.1 and forwards to 127.0.0.1:`target`.

    forget(): what is open now carries nothing any more, either way; new connections work. stalled: nothing
    goes through while it is set, and everything afterwards. opened: how many connections there were.
    """

    def __init__(self, target: int, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.port = port
        self.opened = 0
        self.stalled = False
        self._host = host
        self._epoch = 0
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self.port)
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

    def forget(self) -> None:
        """Let the open connections lead nowhere."""
        self._epoch += 1

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self.opened += 1
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            writers.append(far_writer)
            epoch = self._epoch
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._forward(reader, far_writer, epoch))
                ways.create_task(self._forward(far_reader, writer, epoch))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            for each in writers:
                each.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, epoch: int
    ) -> None:
        while data := await reader.read(65_536):
            while self.stalled:
                await asyncio.sleep(0.01)
            if epoch == self._epoch:
                writer.write(data)
                await writer.drain()
        if epoch == self._epoch:
            writer.transport.abort()
        else:
            # The other end is not told.
            await asyncio.Event().wait()
