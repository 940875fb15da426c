"""LoopThread: the one thread in which the asyncio clients of a blocking program live.

All blocking clients of the process share it; the first to start makes it, the last to leave ends it. The
blocking API does nothing but hand calls over: every rule stands in the asyncio clients.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="pocketmq-loop", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop; the future can be waited for in any thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this very thread."""
        return threading.current_thread() is self._thread

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its value.

        Raises: what it raises. Interrupting the wait (Ctrl-C) cancels it.
        """
        if self.is_current:
            coroutine.close()
            raise RuntimeError(
                "a blocking client was called from its own event loop thread: call it from another "
                "thread, or use the asyncio client of pocketmq.client"
            )
        future = self.begin(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def do(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread and wait for its value."""

        async def called() -> T:
            return function()

        return self.call(called())

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()


_lock = threading.Lock()
_shared: LoopThread | None = None
_users = 0


def acquire() -> LoopThread:
    """The shared thread; give it back with `release`."""
    global _shared, _users
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        _users += 1
        return _shared


def release() -> None:
    """Leave the shared thread; the last one ends it."""
    global _shared, _users
    with _lock:
        _users -= 1
        ended = None
        if _users == 0:
            ended, _shared = _shared, None
        if ended is not None:
            ended.close()
