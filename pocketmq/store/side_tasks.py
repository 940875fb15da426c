"""SideTasks: background tasks that survive errors of the disk and of peers.

    tasks.create_task(side_tasks.repeat("retention", self.round))     a task of rounds
    with side_tasks.attempt("topics"): ...                            a part whose failure stops no others

1. An OSError, a lack of memory or an error of ours ends the round, not the task: the next round follows after
   `retry_ms`. Anything else is a bug and propagates.
2. `troubles` names the tasks whose last attempt failed; health shows it.
3. Logged are the first failure, a changed reason, one line per minute while it lasts, and its end.
4. What they have threads do (`in_thread`) has ended when they have.
Owner: the store; the broker's own side tasks use the same one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

SURVIVED = (OSError, PocketMQError, MemoryError)
RETRY_MS = 1_000
_LOG_INTERVAL_MS = 60_000


@dataclass(slots=True)
class Trouble:
    """Why a task fails; since when, by the monotonic clock; how often it was tried."""

    reason: str
    since_ms: int
    logged_ms: int
    count: int = 1


class SideTasks:
    """The troubles of all side tasks, by name."""

    def __init__(self, clock: Clock, *, retry_ms: int = RETRY_MS) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self.retry_ms = retry_ms
        self.troubles: dict[str, Trouble] = {}

    async def repeat(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` round by round until cancelled; a round waits by itself."""
        while True:
            well = False
            with self.attempt(name):
                await work()
                well = True
            if not well:
                await asyncio.sleep(self.retry_ms / 1000)

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Run a block that may fail (invariant 1)."""
        try:
            yield
        except SURVIVED as error:
            self.failed(name, error)
        else:
            self.went_well(name)

    def failed(self, name: str, error: Exception) -> None:
        """Record a failure."""
        now, reason = self._monotonic_ms(), str(error) or type(error).__name__
        known = self.troubles.get(name)
        if known is None:
            self.troubles[name] = Trouble(reason, now, now)
        else:
            known.count += 1
            if known.reason == reason and now - known.logged_ms < _LOG_INTERVAL_MS:
                return
            known.reason, known.logged_ms = reason, now
        log.error("a side task failed and will be retried task=%s reason=%s", name, reason)

    def went_well(self, name: str) -> None:
        """Record a success."""
        if self.troubles and (known := self.troubles.pop(name, None)) is not None:
            log.warning("a side task has recovered task=%s failures=%d", name, known.count)


async def in_thread(work: Callable[[], None], pool: Executor | None = None) -> None:
    """Run `work` in a thread, and wait for its end even if cancelled.

    So nothing later can overlap with it: two writes of one file, or a file that is closed meanwhile. Raises:
    what `work` raises.
    """
    running = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
