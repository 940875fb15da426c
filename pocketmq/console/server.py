"""ConsoleServer: the console's socket and life cycle. Light to import: the web server and the client come
later.

1. `bind` binds the port before the broker reports that it is ready, so that the address can be printed.
2. Sampling begins when the server is entered. The web framework (starlette, uvicorn, jinja2) is imported when
   the first browser connects, in a thread, so that a busy broker's loop is not blocked.
3. Leaving closes open streams first, then the web server, then the connections to the brokers.
"""

import asyncio
import errno
import importlib
import importlib.util
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pocketmq.console.config import ConsoleConfig
from pocketmq.remoting.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.console.remote_broker import RemoteBroker
    from pocketmq.console.state import Console
    from pocketmq.console.web_server import WebServer

log = logging.getLogger(__name__)

NEEDED = ("starlette", "uvicorn", "jinja2", "prometheus_client")
_BACKLOG = 128


def missing_packages() -> list[str]:
    """Return the packages of the extra `console` that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


class ConsoleServer:
    """`async with ConsoleServer(config, {"name_server": "127.0.0.1:9876"}) as console: console.address`.

    address: `http://host:port`, known after `bind`.
    """

    def __init__(
        self,
        config: ConsoleConfig,
        options: dict[str, Any],
        clock: Clock | None = None,
        *,
        here: "Sequence[Broker]" = (),
        elsewhere: "Sequence[RemoteBroker]" = (),
    ) -> None:
        """options: of an Admin: name server, TLS, credentials. here: brokers of this process; elsewhere:
        those of others whose figures and health are asked for here. Beside a broker with users these log in.

        Raises: IllegalArgument for a half-set login or alarm rules with a fault.
        """
        config.secret()
        if not config.user and any(each.config.authentication_enabled for each in here):
            config = replace(config, broker_users=True)
        if config.alarm_file:
            from pocketmq.console.time.alarm_hook import read_rules

            read_rules(config.alarm_file)
        self._config = config
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._here = here
        self._elsewhere = elsewhere
        self._socket: socket.socket | None = None
        self._stack = AsyncExitStack()
        self.address = ""

    def bind(self, *, port_is_wish: bool = False) -> None:
        """Bind the port. port_is_wish: if it is in use, take any free one.

        Raises: OSError (address in use, no address of this machine).
        """
        config = self._config
        try:
            self._socket = _listen(config.host, config.port)
        except OSError as error:
            if not port_is_wish or error.errno != errno.EADDRINUSE:
                raise
            self._socket = _listen(config.host, 0)
        host, port = self._socket.getsockname()[:2]
        if port_is_wish and port != config.port and config.port:
            log.info("port %d is in use: the console listens on %d instead", config.port, port)
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def __aenter__(self) -> Self:
        """Serve. Raises: OSError if `bind` was not called before and fails now."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        async with AsyncExitStack() as stack:
            stack.callback(self._socket.close)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stop = asyncio.Event()
            stack.callback(stop.set)
            tasks.create_task(self._run(self._socket, stop), name="console")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _run(self, listening: socket.socket, stop: asyncio.Event) -> None:
        """Sample and serve until `stop`; a failing console must not stop its broker."""
        try:
            state = await asyncio.to_thread(importlib.import_module, "pocketmq.console.state")
            async with (
                state.opened(
                    self._config, self._options, self._clock, self._here, self._elsewhere
                ) as console,
                asyncio.TaskGroup() as tasks,
            ):
                sampling = tasks.create_task(console.sampler.run(), name="console samples")
                watching = tasks.create_task(console.watch.run(), name="console alarms")
                await _first_connection(listening, stop)
                if not stop.is_set():
                    await self._serve(console, listening, stop)
                sampling.cancel()
                watching.cancel()
        except* Exception:
            log.exception("the console has failed and is closed; the broker continues")
        finally:
            # Browsers are then refused at once instead of timing out.
            listening.close()

    async def _serve(
        self, console: "Console", listening: socket.socket, stop: asyncio.Event
    ) -> None:
        server = await asyncio.to_thread(_make_web_server, console)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listening]), name="console web server")
            await stop.wait()
            console.closing.set()
            console.sampler.wake()
            server.should_exit = True


def _make_web_server(console: "Console") -> "WebServer":
    """Create the web server, in a thread (invariant 2)."""
    from pocketmq.console.web_server import make_server

    return make_server(console)


async def _first_connection(listening: socket.socket, stop: asyncio.Event) -> None:
    """Wait for the first connection, or `stop`."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()

    def on_readable() -> None:
        loop.remove_reader(listening.fileno())
        came.set()

    loop.add_reader(listening.fileno(), on_readable)
    try:
        async with asyncio.TaskGroup() as tasks:
            waits = [tasks.create_task(each.wait()) for each in (came, stop)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
    finally:
        loop.remove_reader(listening.fileno())


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
