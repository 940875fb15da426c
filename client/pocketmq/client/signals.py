"""Waiting for the signal that asks a service to stop."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
]


async def wait_for_signal() -> signal.Signals:
    """Wait for SIGTERM or SIGINT; handlers are put back afterwards. Only in the main thread.

    Returns: the signal that came.
    """
    loop = asyncio.get_running_loop()
    came: asyncio.Future[signal.Signals] = loop.create_future()

    def note(number: int) -> None:
        if not came.done():
            came.set_result(signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals reach the main thread only: run the event loop there")
    with _handlers(loop, note):
        return await came


@contextmanager
def _handlers(loop: asyncio.AbstractEventLoop, note: Callable[[int], None]) -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        # signal.signal works on Windows too; the loop is woken by the call.
        loop.call_soon_threadsafe(note, number)

    before = {number: signal.signal(number, handle) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
