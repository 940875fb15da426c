"""Waiting for the signal that tells a service to stop, with or without an event loop."""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

_STOPPING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
]


async def wait_for_signal() -> signal.Signals:
    """Wait for SIGTERM or SIGINT; handlers are restored afterwards. Only in the main thread.

    Returns: the signal received.
    """
    loop = asyncio.get_running_loop()
    came: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: int) -> None:
        if not came.done():
            came.set_result(signal.Signals(number))

    with _handlers(lambda number: loop.call_soon_threadsafe(note, number)):
        return await came


def block_until_signal() -> signal.Signals:
    """Like wait_for_signal, for a program without an event loop."""
    came = threading.Event()
    numbers: list[int] = []

    def note(number: int) -> None:
        numbers.append(number)
        came.set()

    with _handlers(note):
        # Windows does not interrupt a wait without a limit.
        while not came.wait(1):
            pass
    return signal.Signals(numbers[0])


@contextmanager
def _handlers(note: Callable[[int], object]) -> Generator[None, None, None]:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("only the main thread receives signals: wait for them there")

    def handle(number: int, frame: FrameType | None) -> None:
        note(number)

    before = {number: signal.signal(number, handle) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
