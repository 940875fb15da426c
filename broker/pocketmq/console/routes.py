"""The routes of the API, one row each; API.md describes them and a test compares the two."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pocketmq.console import overview_api, session_api
from pocketmq.console.call import Call
from pocketmq.console.state import Console

Handle = Callable[[Console, Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """path: behind /api. is_login: may be asked by somebody who is not logged in."""

    method: str
    path: str
    handle: Handle
    is_login: bool = False


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("GET", "/session", session_api.show, is_login=True),
    ApiRoute("POST", "/login", session_api.log_in, is_login=True),
    ApiRoute("POST", "/logout", session_api.log_out, is_login=True),
    ApiRoute("GET", "/overview", overview_api.overview),
    ApiRoute("GET", "/history", overview_api.history),
    ApiRoute("GET", "/live", overview_api.live),
)
