"""run: a coroutine until SIGTERM or Ctrl-C, on uvloop where it is installed."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


def run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve(stop)`; the first signal sets `stop`, a second one ends the process at once."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    try:
        import uvloop

        loop_factory = uvloop.new_event_loop
    except ImportError:
        log.info("uvloop is not installed: asyncio's own loop serves, with about half the speed")
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_until_signal(serve))


async def _until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopped(number: signal.Signals) -> None:
        log.info("stopping: %s received; once more ends the process at once", number.name)
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped, number)
    await serve(stop)
