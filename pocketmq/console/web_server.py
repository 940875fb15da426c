"""The web server: uvicorn in the caller's event loop. Imported when the first browser connects.

`make_server` runs in a thread, since it takes time: imports, the protocol's too, and the pages.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pocketmq.console.app import make_app
from pocketmq.console.slow_clients import WHOLE_WITHIN_S, SlowClients
from pocketmq.console.state import Console

_CLOSE_WITHIN_S = 3
_CONNECTIONS_MAX = 256
_KEEP_ALIVE_S = 15


def protocol_of(half: SlowClients, within_s: float = WHOLE_WITHIN_S) -> type[H11Protocol]:
    """Return uvicorn's protocol with a time limit for requests, and a place among those that wait."""

    class PatientProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            if self._deadline is None:
                self._wait()
            super().data_received(data)
            cycle = self.cycle
            if cycle is not None and not (cycle.response_complete or cycle.more_body):
                self._wait_no_more()

        def on_response_complete(self) -> None:
            self._wait_no_more()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._deadline = self.loop.call_later(within_s, self.transport.abort)
            half.begin(self, self.transport.abort)

        def _wait_no_more(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
                half.end(self)

    return PatientProtocol


class WebServer(uvicorn.Server):
    """Leaves signals to the process that hosts it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(console: Console) -> WebServer:
    """Return a server to run with `serve(sockets=[...])` and end by `should_exit = True`. In any thread."""
    proxies = console.config.proxies()
    config = uvicorn.Config(
        make_app(console),
        http=protocol_of(SlowClients()),
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_WITHIN_S,
    )
    config.load()
    return WebServer(config)
