"""The web application: starlette over the table of routes. Imported only when a browser opens the console.

A request passes the checks of host name, session, rights and token (security), then its handler. The response
is JSON with an ETag, an error text, or a stream, each with headers that restrict what a browser may do.
"""

import hashlib
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pocketmq.console.api.request import (
    ApiRequest,
    ConfirmationNeeded,
    Download,
    EventStream,
    Fields,
)
from pocketmq.console.api.routes import ROUTES, ApiRoute, Needs
from pocketmq.console.errors import ApiError, api_error, not_allowed
from pocketmq.console.security import SESSION_MS, Session
from pocketmq.console.state import Console
from pocketmq.console.users.sight import UserRole
from pocketmq.console.users.view import viewed_by
from pocketmq.remoting import json_codec
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

BODY_SIZE_MAX = 8 << 20
_HEADER_TEXTS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in _HEADER_TEXTS.items()]
_SAFE_METHODS = ("GET", "HEAD")


def make_app(console: Console) -> ASGIApp:
    """Return the whole console: API, metrics, pages."""
    api = [Route(each.path, _endpoint(console, each), methods=[each.method]) for each in ROUTES]
    application = Starlette(
        routes=[Mount("/api", routes=api), *_others(console)],
        exception_handlers={HTTPException: _http_error},
    )
    return _Guarded(application, console)


def _others(console: Console) -> list[BaseRoute]:
    """Return the routes of this package's other modules, if present."""
    found: list[BaseRoute] = []
    if importlib.util.find_spec("pocketmq.console.metrics.page"):
        found += importlib.import_module("pocketmq.console.metrics.page").metrics_routes(console)
    if importlib.util.find_spec("pocketmq.console.pages"):
        found += importlib.import_module("pocketmq.console.pages").page_routes(console)
    return found


class _Guarded:
    """Checks the host name first; adds the headers to every answer."""

    def __init__(self, inner: ASGIApp, console: Console) -> None:
        self._inner = inner
        self._security = console.security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(each for each in _HEADERS if each[0] not in have),
                ]
            await send(message)

        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:
            # A proxy may have read it by the other length: the rest would be another client's request.
            two = ApiError(400, "BAD_REQUEST", "the request has two lengths", None)
            answer = _error(two)
            answer.headers["connection"] = "close"
            await answer(scope, receive, send_guarded)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        try:
            self._security.check_host(hosts[0].decode("latin-1") if len(hosts) == 1 else None)
        except ApiError as error:
            await _error(error)(scope, receive, send_guarded)
            return
        raw_path = scope.get("raw_path") or b""
        if raw_path.startswith(b"/api/"):
            # A name in it (of a broker, a client, an account) may hold a slash, which is not one of the path.
            scope = {**scope, "path": raw_path.decode("latin-1")}
        await self._inner(scope, receive, send_guarded)


def cookie_name(scope: Scope) -> str:
    """Return the cookie's name: browsers keep cookies by host only, and a machine may have two consoles."""
    server = scope.get("server")
    return f"pocketmq_{server[1] if server else 0}"


async def _handled(route: ApiRoute, console: Console, call: ApiRequest) -> Any:
    """Return the handler's answer. Raises: what it raises; of several questions at once, the first error."""
    try:
        return await route.handle(console, call)
    except ExceptionGroup as group:
        error: Exception = group.subgroup((ApiError, PocketMQError)) or group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from group


def _endpoint(console: Console, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        session = _session(console, request)
        try:
            call = await _call(console, route, request, session)
            view = console if route.is_login else await viewed_by(console, session)
            _check_sight(route, view, call)
            answer = await _handled(route, view, call)
            _log_done(call, "done")
            if isinstance(answer, Download):
                answer = await _begun(answer)
            elif isinstance(answer, EventStream):
                answer = EventStream(_while_allowed(view, console, session, answer.events))
            response = _response(answer, request)
        except ConfirmationNeeded as ask:
            return _json(202, ask.content)
        except ApiError as error:
            _log_refused(route, request, session, error.error)
            return _error(error)
        except PocketMQError as error:
            _log_refused(route, request, session, str(error))
            return _error(api_error(error, session.user if console.seats is not None else None))
        except TimeoutError:
            return _error(ApiError(504, "TIMEOUT", "the brokers did not answer in time", None))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("console bug route=%s %s", route.method, route.path)
            return _error(
                ApiError(500, "BUG", "this is a bug of the console", "see the log of this process")
            )
        if call.new_session is not None:
            response.set_cookie(
                cookie_name(request.scope),
                console.security.cookie(call.new_session),
                max_age=SESSION_MS // 1_000,
                path="/",
                secure=_came_by_tls(request),
                httponly=True,
                samesite="strict",
            )
        return response

    return endpoint


def _session(console: Console, request: Request) -> Session:
    """Return the caller's session: a new one without one, or if its user has left."""
    security = console.security
    session = security.session(request.cookies.get(cookie_name(request.scope)))
    if session is None:
        return security.begin()
    if console.seats is not None and session.user is not None and not console.seats.has(session):
        return security.begin()
    return session


def _check_sight(route: ApiRoute, view: Console, call: ApiRequest) -> None:
    """Check what no broker checks: roles, what the console reads itself, and name servers.

    Raises: ApiError 403.
    """
    sight = view.sight
    if route.is_login or sight.is_whole:
        return
    if route.needs is Needs.SUPER:
        raise not_allowed(f"{route.method} {route.path} is for super users")
    if route.needs is Needs.CLUSTER and not sight.cluster:
        raise not_allowed("this page needs the action Get on the cluster")
    if route.method != "GET":
        if sight.role is UserRole.LOOK:
            raise ApiError(
                403,
                "READ_ONLY",
                "your policies allow to look only",
                "an administrator can add lines to them: pocketmq account explain says which one decides",
            )
        return
    asked = {**call.query.values, **call.path}
    for name, sees in (("topic", sight.topic), ("group", sight.group)):
        if asked.get(name) and not sees(asked[name]):
            raise not_allowed(f"your policies do not show the {name} {asked[name]!r}")


async def _begun(download: Download) -> Download:
    """Return a download whose first piece has been read: what fails until then is an answer, not a torn file.

    Raises: what reading raises.
    """
    first = await anext(download.chunks, b"")

    async def chunks() -> AsyncIterator[bytes]:
        yield first
        async for each in download.chunks:
            yield each

    return replace(download, chunks=chunks())


async def _while_allowed(
    view: Console, console: Console, session: Session, events: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield events until the session ends; none that was made with rights which have changed since."""
    async for event in events:
        sight = view.sight
        try:
            if not console.security.lives(session):
                return
            await viewed_by(console, session)
        except ApiError:
            return
        if view.sight == sight:
            yield event


async def _call(
    console: Console, route: ApiRoute, request: Request, session: Session
) -> ApiRequest:
    """Return the checked call. Raises: ApiError."""
    security = console.security
    raw = b""
    _check_origin(request)
    if route.method != "GET":
        security.check_change(
            session, request.headers.get("x-csrf-token"), for_login=route.is_login
        )
        raw = await _read_body(request)
    elif not route.is_login:
        security.check_read(session)
    return ApiRequest(
        session=session,
        security=security,
        path={name: unquote(value) for name, value in request.path_params.items()},
        query=Fields(dict(request.query_params), "query"),
        body=Fields(_parse(request, raw), "body"),
        peer=request.client.host if request.client else "",
        identity=b"\0".join(
            (
                route.method.encode(),
                request.url.path.encode(),
                request.url.query.encode(),
                raw,
            )
        ),
        confirm_token=request.headers.get("x-confirm"),
    )


def _check_origin(request: Request) -> None:
    """Refuse a request that a browser sends from another site's page.

    Such a page could read no answer, but an export costs the brokers something. A link that the user clicks
    on is let through. Raises: ApiError 403.
    """
    fetched = request.headers.get("sec-fetch-dest") != "document"
    if request.headers.get("sec-fetch-site") == "cross-site" and fetched:
        raise ApiError(403, "CSRF", "the request comes from another site", None)
    origin = request.headers.get("origin")
    if request.method == "GET" or origin is None:
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        raise ApiError(403, "CSRF", f"the request comes from another site, {origin}", None)


def _came_by_tls(request: Request) -> bool:
    """Return True if a reverse proxy took it by HTTPS, as the browser or the proxy says.

    A client that forges the header harms only itself: its browser then sends the cookie by HTTPS alone.
    """
    proxied = request.headers.get("x-forwarded-proto", "").strip().lower()
    return proxied == "https" or request.headers.get("origin", "").startswith("https://")


async def _read_body(request: Request) -> bytes:
    """Read the body. Raises: ApiError 413."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_SIZE_MAX:
            raise ApiError(
                413, "TOO_LARGE", f"a request's body has at most {BODY_SIZE_MAX} bytes", None
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _parse(request: Request, raw: bytes) -> Mapping[str, Any]:
    """Parse a JSON object. Raises: ApiError 400."""
    if not raw:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            400,
            "BAD_REQUEST",
            "the body is not declared as JSON",
            "send Content-Type: application/json",
        )
    try:
        found = json_codec.loads(raw)
    except ValueError as error:
        raise ApiError(400, "BAD_REQUEST", f"the body is not JSON: {error}", None) from error
    if not isinstance(found, Mapping):
        raise ApiError(400, "BAD_REQUEST", "the body is not a JSON object", None)
    return found


def _response(answer: Any, request: Request) -> Response:
    if isinstance(answer, Download):
        name = quote(answer.name, safe="")
        return StreamingResponse(
            answer.chunks,
            media_type=answer.content_type,
            headers={
                "Cache-Control": "no-store",
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            },
        )
    if isinstance(answer, EventStream):
        return StreamingResponse(
            answer.events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
    if request.method not in _SAFE_METHODS:
        return _json(200, answer)
    body = json_codec.dumps(answer)
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _json(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        json_codec.dumps(content),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        "application/json",
    )


def _error(error: ApiError) -> Response:
    retry = error.retry_after_s
    return _json(
        error.status, error.to_json(), None if retry is None else {"Retry-After": str(retry)}
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = unquote(request.url.path)
    if error.status_code == 405:
        return _error(
            ApiError(405, "METHOD", f"{request.method} is not supported for {path}", "see API.md")
        )
    if error.status_code == 404:
        return _error(ApiError(404, "NOT_FOUND", f"there is nothing at {path}", None))
    return _error(ApiError(error.status_code, "BAD_REQUEST", error.detail, None))


def _log_done(call: ApiRequest, how: str) -> None:
    for what in call.done:
        log.warning(
            "console %s %s user=%s from=%s session=%s",
            how,
            what,
            call.session.user,
            call.peer,
            call.session.id[:8],
        )


def _log_refused(route: ApiRoute, request: Request, session: Session, why: str) -> None:
    if route.method == "GET":
        return
    log.warning(
        "console refused route=%s %s user=%s from=%s why=%r",
        route.method,
        route.path,
        session.user,
        request.client.host if request.client else "",
        why,
    )
