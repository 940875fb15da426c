"""An event loop whose time jumps: a test of half a minute of timers takes milliseconds.

When no callback is ready the loop's clock goes to the next timer at once. Nothing here waits for real
time, so a test that uses sockets or threads belongs on a real loop.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
START_MS = 1_700_000_000_000
"""Wall-clock time at the start of every virtual run."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: tells the loop that the time-out has passed."""

    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the test waits for something that never comes")
        if timeout > 0:
            self._passed(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """time() starts at 0 and moves by jumps only."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self._pass))

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds

    def time(self) -> float:
        return self._now_s


class LoopClock:
    """The Clock of the running VirtualLoop."""

    def __init__(self) -> None:
        self.wall_jump_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.monotonic_ms() + self.wall_jump_ms

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on a VirtualLoop; a task that is left behind is a failure."""

    async def checked() -> T:
        value = await main()
        left = [
            task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()
        ]
        assert not left, f"tasks left behind: {left}"
        return value

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(checked())


async def until(state: Callable[[], object], within_ms: int = 120_000) -> None:
    """Let virtual time pass until the state is true, looking every 10 ms."""
    for _ in range(within_ms // 10):
        if state():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {within_ms} ms of virtual time: {state}")
