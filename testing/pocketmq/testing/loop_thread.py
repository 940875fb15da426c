"""LoopThread: an event loop in a thread of its own, for servers and clients that a blocking test uses.

What lives in it is entered by `body` into an exit stack before start() returns, and left by close() in the
reverse order: thread, loop, sockets and tasks are gone when close() returns.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from pocketmq.testing.clock import AdvancingLoop

T = TypeVar("T")
Body = Callable[[AsyncExitStack], Awaitable[None]]


class LoopThread:
    """One thread, one AdvancingLoop, one body."""

    def __init__(self, body: Body, name: str) -> None:
        self._body = body
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event
        self.loop: AdvancingLoop
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return when the body is entered. Raises: what entering raises."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def close(self) -> None:
        """Leave the body, end loop and thread. Raises: what leaving raises."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=AdvancingLoop) as runner:
                loop = runner.get_loop()
                assert isinstance(loop, AdvancingLoop)
                self.loop = loop
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller that starts or closes
            self._failure = error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            await self._body(stack)
            self._ready.set()
            await self._stop.wait()

    # ------------------------------------------------------------ calls from other threads

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop; the future can be waited for in any thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its value. Raises: what it raises."""
        future = self.begin(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
