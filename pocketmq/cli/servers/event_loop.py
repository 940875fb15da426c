"""run: runs a coroutine until SIGTERM, Ctrl-C or the end of its input, on uvloop if installed."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from pocketmq.cli.servers.hangup import ignore_hangup, on_hangup
from pocketmq.remoting.transport.threads import Threads

log = logging.getLogger(__name__)

_STANDARD_INPUT = 0
_THREADS = min(32, (os.cpu_count() or 1) + 4)


def run(
    serve: Callable[[asyncio.Event], Awaitable[None]],
    *,
    until_input_ends: bool = False,
    reload: Callable[[], object] = lambda: None,
) -> None:
    """Run `serve(stop)`; the first signal sets `stop`, a second one ends the process at once.

    until_input_ends: the end of standard input, which must be a pipe, sets `stop`, too. reload: called at
    each SIGHUP, which ends nothing (hangup.py).
    """
    ignore_hangup()
    # If another program truncates a file of the store, or the disk cannot read a page of it, a write to the
    # map ends the process (SIGBUS): this logs where.
    faulthandler.enable()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.get_loop().set_default_executor(Threads(_THREADS, "pocketmq"))
        runner.run(_until_signal(serve, until_input_ends, reload))


def new_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop of a server."""
    try:
        import uvloop
    except ImportError:
        log.info("uvloop is not installed: using asyncio's own event loop, at about half the speed")
        if sys.platform != "linux":
            return asyncio.new_event_loop()
        from pocketmq.cli.servers.turn_selector import TurnSelector

        return asyncio.SelectorEventLoop(TurnSelector())
    return uvloop.new_event_loop()


async def _until_signal(
    serve: Callable[[asyncio.Event], Awaitable[None]],
    until_input_ends: bool,
    reload: Callable[[], object],
) -> None:
    on_hangup(reload)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stopped(number: signal.Signals) -> None:
        log.info("stopping: received %s; a second one ends the process immediately", number.name)
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped, number)
    if until_input_ends:

        def readable() -> None:
            if not os.read(_STANDARD_INPUT, 4096):
                log.info("stopping: standard input has ended")
                loop.remove_reader(_STANDARD_INPUT)
                stop.set()

        loop.add_reader(_STANDARD_INPUT, readable)
    await serve(stop)
