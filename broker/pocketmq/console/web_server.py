"""The web server: uvicorn in the loop of whoever runs it. Imported when the first browser connects.

`make_server` runs in a thread and does there what takes time: imports, the protocol's too, and the pages.
"""

import contextlib
from collections.abc import Iterator

import uvicorn

from pocketmq.console.app import make_app
from pocketmq.console.state import Console

_CLOSE_WITHIN_S = 3
_CONNECTIONS_MAX = 256
_KEEP_ALIVE_S = 15


class WebServer(uvicorn.Server):
    """Signals belong to the process whose guest it is."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(console: Console) -> WebServer:
    """A server to be run with `serve(sockets=[...])` and ended by `should_exit = True`. In any thread."""
    config = uvicorn.Config(
        make_app(console),
        http="h11",
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CLOSE_WITHIN_S,
    )
    config.load()
    return WebServer(config)
