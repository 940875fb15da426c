"""LoopThread: an event loop in a thread of its own.

All blocking clients of the process share one; the first to start makes it, the last to leave ends it. The
blocking API does nothing but hand calls over: every rule stands in the asyncio clients. A forked child has no
thread of its parent's: its first client makes another.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from pocketmq.client import forks
from pocketmq.client.errors import ForkedClient

T = TypeVar("T")
Body = Callable[[AsyncExitStack], Awaitable[object]]


async def _nothing(stack: AsyncExitStack) -> None:
    """The body of a thread that only carries calls."""


class LoopThread:
    """One thread, one loop, one body.

    What lives in the thread is entered by `body` into an exit stack before start() returns, and left by
    close() in the reverse order: loop, sockets and tasks are closed when close() returns.
    """

    def __init__(
        self,
        name: str,
        body: Body = _nothing,
        *,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._body = body
        self._new_loop = new_loop
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pid = os.getpid()
        self.is_inherited = False
        forks.watch(self, LoopThread._after_fork)

    def _after_fork(self) -> None:
        """Refuse calls from now on: the thread is the parent's."""
        self.is_inherited = True

    def check_own(self) -> None:
        """Raises: ForkedClient."""
        if self.is_inherited:
            raise ForkedClient(forks.sentence("this client", self._pid))

    def start(self) -> None:
        """Return when the body is entered. Raises: what entering raises."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def close(self) -> None:
        """Leave the body, end loop and thread; nothing in a forked child. Raises: what leaving raises."""
        if self.is_inherited:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            if not self.is_current:
                self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                self._loop = runner.get_loop()
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

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this very thread."""
        return threading.current_thread() is self._thread

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop; the future can be waited for in any thread. Raises: ForkedClient."""
        if self.is_inherited:
            coroutine.close()
        self.check_own()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

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

    def post(self, function: Callable[[], object]) -> None:
        """Call a plain function in the loop's thread, later. Raises: ForkedClient."""
        self.check_own()
        self._loop.call_soon_threadsafe(function)

    def do(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread and wait for its value."""
        if self.is_current:
            # A callback, such as on_queues_changed.
            return function()

        async def called() -> T:
            return function()

        return self.call(called())


_lock = threading.Lock()
_shared: LoopThread | None = None
_users = 0
# Kept in a child for as long as it lives: to end a parent's loop there would unregister the parent's sockets.
_parents: list[LoopThread] = []


def _begin_process() -> None:
    global _lock, _shared, _users
    # Another thread may have held it.
    _lock = threading.Lock()
    if _shared is not None:
        _parents.append(_shared)
    _shared, _users = None, 0


forks.always(_begin_process)


def acquire() -> LoopThread:
    """The shared thread; give it back with `release`."""
    global _shared, _users
    with _lock:
        if _shared is None:
            _shared = LoopThread("pocketmq-loop")
            _shared.start()
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
