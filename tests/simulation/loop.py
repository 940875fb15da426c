"""SimulatedLoop: an event loop without descriptors, whose time jumps, and threads that take turns with it.

1. No callback is ready: the time goes to the next timer. Nothing ever waits for real time.
2. What the product gives to a thread pool runs in a Fiber: a real thread, but only one thread of the
   process runs at any time. A fiber stands still in `pause`, for as long in virtual time as the disk
   takes, and meanwhile the loop runs: so two pool threads meet each other between any two system calls.
3. Tasks have numbers for hashes, so that sets of them are walked in the same order each time: a run
   depends on its seed alone.
"""

import asyncio
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
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


class _Thread:
    """A real thread that does one piece of work after the other, each when it is told to go."""

    def __init__(self) -> None:
        self.go = threading.Lock()
        self.back = threading.Lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            if self.work is None:
                return
            self.work()
            self.back.release()

    def end(self) -> None:
        """Only of one that has no work."""
        self.work = None
        self.go.release()
        self._thread.join()


class Fiber:
    """A function in another thread, which runs only while the loop's thread waits for it."""

    _current = threading.local()

    def __init__(
        self, work: Callable[[], Any], context: contextvars.Context, idle: list[_Thread]
    ) -> None:
        self._work = work
        self._context = context
        # A thread costs more than most of what is done in it: it goes back to the idle ones.
        self._idle = idle
        self._thread = idle.pop() if idle else _Thread()
        self._thread.work = self._run
        self.pause_s = 0.0
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    @classmethod
    def current(cls) -> "Fiber | None":
        """The fiber whose thread this is; None in the loop's thread."""
        return getattr(cls._current, "fiber", None)

    def _run(self) -> None:
        Fiber._current.fiber = self
        try:
            self.result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - it goes to the waiter for the result
            self.error = error
        self.ended = True

    def turn(self) -> None:
        """Let it run until it pauses or ends."""
        self._thread.go.release()
        self._thread.back.acquire()
        if self.ended:
            self._thread.work = None
            self._idle.append(self._thread)

    def pause(self, seconds: float) -> None:
        """In the fiber: let the others run for that long."""
        self.pause_s = seconds
        self._thread.back.release()
        self._thread.go.acquire()

    def finish(self) -> None:
        """Let it run to its end without pauses: the loop's thread waits for the pool."""
        while not self.ended:
            self.turn()


class _Pool:
    """Which jobs of one executor run, and what waits for a thread."""

    def __init__(self, thread_count: int) -> None:
        self.free = thread_count
        self.running: list[Job] = []
        self.queue: deque[Job] = deque()


class Job(Future[Any]):
    """What submit() of an executor returns; who asks for the result at once lets the others wait."""

    def __init__(self, work: Callable[[], Any], idle: list[_Thread]) -> None:
        super().__init__()
        self.work = work
        self.idle = idle
        self.context = contextvars.copy_context()
        self.fiber: Fiber | None = None

    def begin(self) -> bool:
        """False when no caller wants it any more."""
        if self.fiber is None:
            if not self.set_running_or_notify_cancel():
                return False
            self.fiber = Fiber(self.work, self.context, self.idle)
        return True

    def settle(self) -> None:
        """Tell what came of it, once the fiber has ended."""
        assert self.fiber is not None
        if self.fiber.error is not None:
            self.set_exception(self.fiber.error)
        else:
            self.set_result(self.fiber.result)

    def finish(self) -> None:
        """Run it to its end, now."""
        if not self.done() and self.begin():
            assert self.fiber is not None
            self.fiber.finish()
            self.settle()

    def result(self, timeout: float | None = None) -> Any:
        self.finish()
        return super().result(timeout)


class SimulatedLoop(asyncio.BaseEventLoop):
    """now_s: virtual time since the start of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector = _Jump(self)
        self._pools: dict[int, _Pool] = {}
        self._idle: list[_Thread] = []
        self.network: Any = None
        self.set_task_factory(_numbered)

    def time(self) -> float:
        return self.now_s

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # ------------------------------------------------------------ threads

    def submit(self, executor: Any, func: Callable[..., Any], /, *args: Any) -> Job:
        """As ThreadPoolExecutor.submit."""
        pool = self._pools.get(id(executor))
        if pool is None:
            size = executor._max_workers if executor is not None else _FIBERS_OF_DEFAULT_POOL
            pool = self._pools[id(executor)] = _Pool(size)
        job = Job(lambda: func(*args), self._idle)
        pool.queue.append(job)
        self.call_soon(self._next, pool)
        return job

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        return asyncio.wrap_future(self.submit(executor, func, *args), loop=self)

    def _next(self, pool: _Pool) -> None:
        while pool.free and pool.queue:
            job = pool.queue.popleft()
            if job.begin():
                pool.free -= 1
                pool.running.append(job)
                self._advance(job, pool)

    def _advance(self, job: Job, pool: _Pool) -> None:
        fiber = job.fiber
        assert fiber is not None
        if not fiber.ended:
            fiber.turn()
        if not fiber.ended:
            self.call_later(fiber.pause_s, self._advance, job, pool)
            return
        pool.running.remove(job)
        pool.free += 1
        if not job.done():
            job.settle()
        self._next(pool)

    def end_threads(self) -> None:
        """None is left; the loop is not used any more."""
        while self._idle:
            self._idle.pop().end()

    def drain(self, executor: Any) -> None:
        """As shutdown(wait=True) of the executor: all that it runs comes to its end first."""
        pool = self._pools.pop(id(executor), None)
        for job in [*pool.running, *pool.queue] if pool is not None else ():
            job.finish()

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
