"""Runner: keeps a TaskGroup open between start() and stop().

A client is started in one place and shut down in another, so no `async with` of the caller can hold its
tasks. A Runner is the one task that does: it enters what it is given, opens the TaskGroup, and leaves both in
reverse order when told to stop. This is the only module that creates a task outside a group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from typing import Any

from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

CANCEL_AGAIN_S = 5.0
"""A child that has not ended so long after its cancellation is cancelled again."""

SetUp = Callable[[AsyncExitStack], Awaitable[None]]


class Runner:
    """The owner of all tasks of one client; every child ends before stop() returns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._task: asyncio.Task[None] | None = None
        self._stopping: asyncio.Event | None = None
        self._group: asyncio.TaskGroup | None = None
        self._children: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._context = Context()

    @property
    def running(self) -> bool:
        return self._group is not None

    @property
    def children(self) -> int:
        """The number of running tasks."""
        return len(self._children)

    async def start(self, set_up: SetUp | None = None) -> None:
        """Enter what `set_up` enters and open the group. Raises: what set_up raises."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._stopping = asyncio.Event()
        self._context = copy_context()
        self._task = loop.create_task(self._run(ready, self._stopping, set_up), name=self.name)
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def _run(
        self, ready: "asyncio.Future[None]", stopping: asyncio.Event, set_up: SetUp | None
    ) -> None:
        async with AsyncExitStack() as stack:
            try:
                if set_up is not None:
                    await set_up(stack)
            except BaseException as error:
                # The caller of start() gets it; here it would only be "never retrieved".
                if not ready.done():
                    ready.set_exception(error)
                if not isinstance(error, Exception):
                    raise
                return
            async with asyncio.TaskGroup() as group:
                self._group = group
                if not ready.done():
                    ready.set_result(None)
                await stopping.wait()
                self._group = None
                for timer in self._timers:
                    timer.cancel()
                self._timers.clear()
                while self._children:
                    children = list(self._children)
                    for child in children:
                        child.cancel()
                    # A listener may swallow a cancellation (asyncio.wait_for of 3.11 does now and then).
                    await asyncio.wait(children, timeout=CANCEL_AGAIN_S)

    def spawn(
        self,
        coroutine: Coroutine[Any, Any, None],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[None] | None":
        """Run a coroutine as a child; None if the runner is stopping.

        context: else it has the variables that the runner was started with, not those of a message's call.
        An exception in it is logged and ends that child only.
        """
        if self._group is None:
            coroutine.close()
            return None
        variables = self._context.copy() if context is None else context
        task = self._group.create_task(self._guarded(coroutine, name), name=name, context=variables)
        self._children.add(task)

        def ended(done: "asyncio.Task[None]") -> None:
            self._children.discard(done)
            # A task that is cancelled before its first step leaves its coroutine unstarted.
            coroutine.close()

        task.add_done_callback(ended)
        return task

    async def _guarded(self, coroutine: Coroutine[Any, Any, None], name: str | None) -> None:
        try:
            await coroutine
        except Exception:
            log.exception("task failed runner=%s task=%s", self.name, name)

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> None:
        """Call a plain function after a while, unless the runner stops before."""
        if self._group is None:
            return

        def call() -> None:
            self._timers.discard(timer)
            try:
                function()
            except Exception:
                log.exception("timer failed runner=%s", self.name)

        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay_ms / 1000, call, context=self._context)
        self._timers.add(timer)

    def every(
        self,
        interval_ms: int,
        action: Callable[[], Awaitable[object]],
        *,
        first_ms: int,
        name: str,
    ) -> None:
        """Run an action repeatedly: first after first_ms, then interval_ms after its end.

        What it raises is logged; the next run follows all the same.
        """

        async def repeat() -> None:
            await asyncio.sleep(first_ms / 1000)
            while True:
                try:
                    await action()
                except PocketMQError as error:
                    log.warning(
                        "periodic work failed, retrying in %s ms task=%s reason=%r",
                        interval_ms,
                        name,
                        str(error),
                    )
                except Exception:
                    log.exception(
                        "periodic work failed, retrying in %s ms task=%s", interval_ms, name
                    )
                await asyncio.sleep(interval_ms / 1000)

        self.spawn(repeat(), name=name)

    async def stop(self) -> None:
        """Cancel the children, wait for them, leave what was entered. May be called twice."""
        if self._task is None or self._stopping is None:
            return
        self._stopping.set()
        await asyncio.shield(self._task)


_alone: set[asyncio.Task[None]] = set()


def alone(coroutine: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """Run a coroutine as a child of none: what ends a runner from inside one of its children."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    _alone.add(task)
    task.add_done_callback(_alone.discard)
    return task
