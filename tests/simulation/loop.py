"""SimulatedLoop: an event loop without descriptors, whose time jumps, and threads that take turns with it.

1. No callback is ready: the time goes to the next timer. Nothing ever waits for real time.
2. What the product gives to a thread pool runs in a Fiber: a real thread, but only one thread of the
   process runs at any time. A fiber stands still in `pause`, for as long in virtual time as the disk
   takes, and meanwhile the loop goes on: so two pool threads meet each other between any two system calls.
3. Tasks have numbers for hashes, so that sets of them are walked in the same order each time: a run
   depends on its seed alone.
"""

import asyncio
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_FIBERS_OF_DEFAULT_POOL = 6


class Deadlock(RuntimeError):
    """Nothing is ready and no timer runs: what is waited for never comes."""


class NumberedTask(asyncio.Task[Any]):
    """A task with the same place in a set in every run."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **named: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._number


class _Jump:
    """The selector of a loop that has nothing to select: it turns the clock."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("the run waits for something that never comes")
        self._loop.now_s += timeout
        return []


class Fiber:
    """A function in a thread of its own that runs only while the loop's thread waits for it."""

    _current = threading.local()

    def __init__(self, work: Callable[[], Any], context: contextvars.Context) -> None:
        self._work = work
        self._context = context
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self.pause_s = 0.0
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @classmethod
    def current(cls) -> "Fiber | None":
        """The fiber whose thread this is; None in the loop's thread."""
        return getattr(cls._current, "fiber", None)

    def _run(self) -> None:
        self._go.acquire()
        Fiber._current.fiber = self
        try:
            self.result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - it goes to who waits for the result
            self.error = error
        self.ended = True
        self._back.release()

    def turn(self) -> None:
        """Let it run until it pauses or ends."""
        self._go.release()
        self._back.acquire()

    def pause(self, seconds: float) -> None:
        """In the fiber: let the others run for that long."""
        self.pause_s = seconds
        self._back.release()
        self._go.acquire()

    def finish(self) -> None:
        """Let it run to its end without pauses: the loop's thread waits for the pool."""
        while not self.ended:
            self.turn()
        self._thread.join()


class _Pool:
    """Which fibers of one executor run, and what waits for a thread."""

    def __init__(self, thread_count: int) -> None:
        self.free = thread_count
        self.running: list[Fiber] = []
        self.queue: deque[Callable[[], None]] = deque()


class SimulatedLoop(asyncio.BaseEventLoop):
    """now_s: virtual time since the start of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector = _Jump(self)
        self._pools: dict[int, _Pool] = {}
        self.network: Any = None
        self.set_task_factory(_numbered)

    def time(self) -> float:
        return self.now_s

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # ------------------------------------------------------------ threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        size = executor._max_workers if isinstance(executor, ThreadPoolExecutor) else None
        pool = self._pools.setdefault(id(executor), _Pool(size or _FIBERS_OF_DEFAULT_POOL))
        future: asyncio.Future[Any] = self.create_future()
        context = contextvars.copy_context()

        def begin() -> None:
            if future.cancelled():
                self._next(pool)
                return
            fiber = Fiber(lambda: func(*args), context)
            pool.running.append(fiber)
            self._advance(fiber, pool, future)

        if pool.free:
            pool.free -= 1
            self.call_soon(begin)
        else:
            pool.queue.append(begin)
        return future

    def _advance(self, fiber: Fiber, pool: _Pool, future: "asyncio.Future[Any]") -> None:
        if not fiber.ended:
            fiber.turn()
        if not fiber.ended:
            self.call_later(fiber.pause_s, self._advance, fiber, pool, future)
            return
        pool.running.remove(fiber)
        self._next(pool)
        if not future.done():
            if fiber.error is not None:
                future.set_exception(fiber.error)
            else:
                future.set_result(fiber.result)

    def _next(self, pool: _Pool) -> None:
        if pool.queue:
            self.call_soon(pool.queue.popleft())
        else:
            pool.free += 1

    def drain(self, executor: Any) -> None:
        """As shutdown(wait=True) of the executor: all that it runs comes to its end first."""
        pool = self._pools.pop(id(executor), None)
        if pool is not None:
            for fiber in list(pool.running):
                fiber.finish()

    async def shutdown_default_executor(self, *_: Any) -> None:
        self.drain(None)

    # ------------------------------------------------------------ network

    # Their overloads in typeshed are many; only what the product uses is served.
    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **how: Any) -> Any:  # type: ignore[override]  # fmt: skip
        return self.network.serve(factory, host, port, how.get("sock"))

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]  # fmt: skip
        return await self.network.connect(factory, host, port)


def _numbered(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **named: Any,
) -> "asyncio.Future[Any]":
    return NumberedTask(coroutine, loop=loop, **named)
