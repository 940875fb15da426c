"""OutboundThread: calls to external services that may never return.

Not the pool of the event loop: that has few threads, and waits for all of them when the program ends.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class OutboundThread(Generic[T]):
    """Owner of at most one thread at a time, which ends with the program if not before."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The outcome of the last call.
        self._last: asyncio.Future[T] | None = None

    async def call(self, function: Callable[[], T], within_s: float) -> T:
        """Return what the function returns, once the last one has ended.

        Raises: what it raises; TimeoutError if either takes longer, RuntimeError if there is no thread.
        """
        if self._last is not None:
            await self._ended(self._last, within_s)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        # Retrieved even if its caller has stopped waiting.
        ended.add_done_callback(asyncio.Future.exception)

        def run() -> None:
            try:
                found = function()
            except Exception as error:  # noqa: BLE001 - it belongs to the caller
                self._tell(loop, ended.set_exception, error)
            else:
                self._tell(loop, ended.set_result, found)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        self._last = ended
        await self._ended(ended, within_s)
        return ended.result()

    async def _ended(self, call: "asyncio.Future[T]", within_s: float) -> None:
        """Wait for a call; the call continues even if the waiter is cancelled. Raises: TimeoutError."""
        await asyncio.wait([call], timeout=within_s)
        if not call.done():
            raise TimeoutError(f"no answer within {within_s:g} s")

    def _tell(
        self, loop: asyncio.AbstractEventLoop, tell: Callable[..., object], what: object
    ) -> None:
        # The program may have ended without this.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, what)
