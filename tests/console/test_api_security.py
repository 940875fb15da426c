"""The console's doors: rights, tokens, host names, confirmations, login. Over real HTTP."""

import asyncio
import json
import logging
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from pocketmq.console import security as security_module
from pocketmq.console.api.routes import ROUTES, ApiRoute
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.errors import ApiError
from pocketmq.console.security import CONFIRM_MS, SESSION_MS, Security
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.errors import IllegalArgument
from tests.console.console_peer import browser, site

_API = Path(security_module.__file__).with_name("API.md")
_CHANGING = [route for route in ROUTES if route.method != "GET"]


def _path(route: ApiRoute) -> str:
    return re.sub(r"{(\w+)}", "x", route.path)


def test_the_contract_names_every_route_and_no_other() -> None:
    """What API.md promises is what is served."""
    found = re.findall(r"^- `(GET|PUT|POST|DELETE) /api(/[^`?]*)", _API.read_text("utf-8"), re.M)
    assert set(found) == {(route.method, route.path) for route in ROUTES}


def test_every_dangerous_route_asks_for_a_confirmation() -> None:
    """Dangerous actions ask once: their handlers call confirm, and only theirs."""
    import inspect

    text = _API.read_text("utf-8")
    for route in _CHANGING:
        line = next(
            each
            for each in text.splitlines()
            if each.startswith(f"- `{route.method} /api{route.path}")
        )
        module = inspect.getmodule(route.handle)
        assert module is not None
        source = inspect.getsource(route.handle)
        asks = "confirm(" in source or "_reset(" in source
        assert asks == ("*confirm*" in line), line


async def test_each_state_changing_route_refuses_without_the_token(tmp_path: Path) -> None:
    """Conventions, security: every route that is no GET is walked, without and with a wrong token."""
    async with site(tmp_path) as running:
        for route in _CHANGING:
            for token in ("", "0" * 64):
                reply = await running.user.call(
                    route.method, _path(route), {}, {"X-CSRF-Token": token}
                )
                assert (reply.status, reply.json["code"]) == (403, "CSRF"), route
        async with browser(running.console) as stranger:
            # The token of one session does not open another one.
            stranger.token = running.user.token
            reply = await stranger.call("PUT", "/topics/T", {})
            assert (reply.status, reply.json["code"]) == (403, "CSRF")
        origin = await running.user.call("PUT", "/topics/T", {}, {"Origin": "http://evil.example"})
        assert (origin.status, origin.json["code"]) == (403, "CSRF")
        assert not await running.admin_topics()


async def test_beyond_loopback_without_a_login_nothing_can_be_changed(tmp_path: Path) -> None:
    """Conventions, security: read-only unless bound to loopback or a login is set."""
    async with site(tmp_path, console={"host": "0.0.0.0"}) as running:
        session = await running.user.open()
        assert (session["readOnly"], session["loginRequired"]) == (True, False)
        for route in _CHANGING:
            reply = await running.user.call(route.method, _path(route), {})
            expected = (403, "READ_ONLY")
            if route.path == "/login":
                expected = (400, "BAD_REQUEST")
            if route.path == "/logout":
                assert reply.status == 200
                await running.user.open()
                continue
            assert (reply.status, reply.json["code"]) == expected, route
        assert (await running.user.get("/overview")).status == 200


async def test_with_a_login_everything_but_the_door_asks_for_it(tmp_path: Path) -> None:
    """Conventions, security: login, its cookie, its rate limit, logout."""
    settings = {"host": "0.0.0.0", "user": "op", "password": "secret"}
    async with site(tmp_path, console=settings) as running:
        user = running.user
        session = await user.open()
        assert (session["readOnly"], session["loginRequired"]) == (False, True)
        for route in ROUTES:
            if route.is_login:
                continue
            reply = await user.call(
                route.method, _path(route), None if route.method == "GET" else {}
            )
            assert (reply.status, reply.json["code"]) == (401, "LOGIN"), route
        old_token = user.token
        reply = await user.call("POST", "/login", {"user": "op", "password": "secret"})
        assert (reply.status, reply.json["user"]) == (200, "op")
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        # The console itself speaks HTTP; before it stands a proxy with TLS.
        for proxied in ({"X-Forwarded-Proto": "https"}, {"Origin": "https://mq.example"}):
            async with browser(running.console) as safe:
                by_tls = await safe.call("GET", "/session", None, proxied)
                assert "Secure" in by_tls.headers["set-cookie"]
        assert reply.json["csrfToken"] != old_token
        user.token = reply.json["csrfToken"]
        assert (await user.do("PUT", "/topics/T", {"readQueues": 1}))["created"]
        kept = dict(user.http.cookies)
        assert (await user.call("POST", "/logout", {})).status == 200
        # A cookie that was kept is worth nothing after the logout.
        async with browser(running.console) as thief:
            thief.http.cookies.update(kept)
            assert (await thief.get("/overview")).status == 401
        await user.open()
        for _ in range(5):
            wrong = await user.call("POST", "/login", {"user": "op", "password": "guess"})
            assert (wrong.status, wrong.json["code"]) == (401, "LOGIN")
        limited = await user.call("POST", "/login", {"user": "op", "password": "secret"})
        assert (limited.status, limited.json["code"]) == (429, "TOO_MANY")
        assert int(limited.headers["retry-after"]) >= 1


async def test_a_confirmation_holds_once_for_its_request_and_session(
    tmp_path: Path,
) -> None:
    """Dangerous actions say what they will do, and ask once."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        asked = await user.ask("DELETE", "/topics/T")
        assert asked["action"] == "topic.delete"
        assert asked["parameters"]["topic"] == "T"
        assert "'T' with 0 messages in 2 queues" in asked["willDo"]
        assert "T" in await running.admin_topics()
        confirm = {"X-Confirm": asked["confirm"]}
        other = await user.call("DELETE", "/topics/T?cluster=DefaultCluster", None, confirm)
        assert (other.status, other.json["code"]) == (409, "CONFIRM")
        used = await user.call("DELETE", "/topics/T", None, confirm)
        assert (used.status, used.json["code"]) == (409, "CONFIRM")
        asked = await user.ask("DELETE", "/topics/T")
        async with browser(running.console) as other_user:
            await other_user.open()
            theirs = await other_user.call(
                "DELETE", "/topics/T", None, {"X-Confirm": asked["confirm"]}
            )
            assert (theirs.status, theirs.json["code"]) == (409, "CONFIRM")
        assert "T" in await running.admin_topics()
        await user.do("DELETE", "/topics/T")
        assert "T" not in await running.admin_topics()


async def test_every_answer_carries_the_security_headers(tmp_path: Path) -> None:
    """Conventions, security: CSP without inline script, no framing, no sniffing; other names refused."""
    async with site(tmp_path) as running:
        for path in ("/session", "/nothing", "/messages"):
            headers = (await running.user.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'self'; script-src 'self'" in policy
            assert "unsafe" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
        rebound = await running.user.call("GET", "/session", None, {"Host": "evil.example:80"})
        assert (rebound.status, rebound.json["code"]) == (403, "HOST")
        by_name = await running.user.call("GET", "/session", None, {"Host": "localhost:1"})
        assert by_name.status == 200


async def test_what_is_no_json_object_or_too_large_is_refused_in_words(tmp_path: Path) -> None:
    """Errors name the cause and the next step."""
    async with site(tmp_path) as running:
        user = running.user
        token = {"X-CSRF-Token": user.token, "Content-Type": "application/json"}
        for content in (b"[]", b"{", b'"x"'):
            answer = await user.http.put("/api/topics/T", content=content, headers=token)
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        form = {**token, "Content-Type": "application/x-www-form-urlencoded"}
        answer = await user.http.put("/api/topics/T", content=b"a=1", headers=form)
        assert answer.status_code == 400
        large = json.dumps({"body": "x" * (9 << 20)}).encode()
        try:
            answer = await user.http.post("/api/topics/T/messages", content=large, headers=token)
        except httpx.WriteError:
            # Refused while it was still being written.
            pass
        else:
            assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
        assert (await user.get("/topics/Nowhere")).json["code"] == "NOT_FOUND"
        assert (await user.get("/topics", page="first")).json["code"] == "BAD_REQUEST"
        wrong = await user.call("POST", "/topics", {})
        assert (wrong.status, wrong.json["code"]) == (405, "METHOD")


async def test_an_unchanged_answer_is_not_sent_again(tmp_path: Path) -> None:
    """API.md, polling: ETag and 304."""
    async with site(tmp_path) as running:
        first = await running.user.get("/topics")
        again = await running.user.call(
            "GET", "/topics", None, {"If-None-Match": first.headers["etag"]}
        )
        assert (again.status, again.content) == (304, b"")


# ------------------------------------------------------------ without a server


def _security(clock: ManualClock, **settings: str) -> Security:
    return Security(ConsoleConfig(**settings), clock)  # type: ignore[arg-type]


def test_a_session_expires_and_a_forged_one_is_refused() -> None:
    """Conventions, security: the cookie is signed, and it ages."""
    clock = ManualClock()
    security = _security(clock)
    session = security.begin("op")
    cookie = security.cookie(session)
    assert security.session(cookie) == session
    assert security.session(cookie[:-1] + ("0" if cookie[-1] != "0" else "1")) is None
    body, _, mac = cookie.rpartition(".")
    forged = bytes.fromhex(body).replace(b"op", b"me").hex()
    assert security.session(f"{forged}.{mac}") is None
    assert security.session("") is None
    assert security.session("é.ü") is None
    assert _security(clock).session(cookie) is None
    clock.advance_ms(SESSION_MS + 1)
    assert security.session(cookie) is None


def test_an_ended_session_stays_ended_whatever_strangers_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody has a session without a user, and may end it: many of these made a stolen cookie good again."""
    monkeypatch.setattr("pocketmq.console.security._REMEMBERED_MAX", 10)
    security = _security(ManualClock(), user="u", password="password")
    session = security.begin("u")
    cookie = security.cookie(session)
    security.end(session)
    for _ in range(20):
        security.end(security.begin())
    assert security.session(cookie) is None


def test_a_confirmation_grows_old() -> None:
    """A token from long ago does nothing."""
    clock = ManualClock()
    security = _security(clock)
    session = security.begin()
    token = security.ask(session, b"DELETE /x")
    clock.advance_ms(CONFIRM_MS + 1)
    with pytest.raises(ApiError, match="too old"):
        security.confirmed(session, b"DELETE /x", token)


def test_failed_logins_count_by_address_for_a_minute() -> None:
    """Conventions, security: passwords cannot be guessed quickly, nor others locked out."""
    clock = ManualClock()
    security = _security(clock, user="op", password="secret")
    session = security.begin()
    for _ in range(5):
        with pytest.raises(ApiError, match="wrong"):
            security.log_in(session, "op", "guess", "10.0.0.1")
    with pytest.raises(ApiError, match="within a minute"):
        security.log_in(session, "op", "secret", "10.0.0.1")
    assert security.log_in(session, "op", "secret", "10.0.0.2").user == "op"
    clock.advance_ms(60_001)
    assert security.log_in(session, "op", "secret", "10.0.0.1").user == "op"
    # Who has one of these addresses has all of its network.
    for number in range(5):
        with pytest.raises(ApiError, match="wrong"):
            security.log_in(session, "op", "guess", f"2001:db8::{number}")
    with pytest.raises(ApiError, match="2001:db8::/64 failed"):
        security.log_in(session, "op", "guess", "2001:db8::77")
    assert security.log_in(session, "op", "secret", "2001:db8:0:1::77").user == "op"


@pytest.mark.parametrize("proxies", ["", "127.0.0.1", "10.0.0.0/8, 127.0.0.0/8"])
async def test_behind_a_known_proxy_failed_logins_count_by_client(
    tmp_path: Path, proxies: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All came from the proxy's address before: a stranger's guesses locked the operator out."""
    caplog.set_level(logging.INFO)
    settings = {"user": "op", "password": "secret", "trusted_proxies": proxies}

    def via(address: str) -> dict[str, str]:
        # What a caller says of itself stands before what the proxy adds.
        return {"X-Forwarded-For": f"192.0.2.99, {address}"}

    async with site(tmp_path, console=settings) as running:
        await running.user.open()
        guess, right = ({"user": "op", "password": word} for word in ("guess", "secret"))
        for _ in range(5):
            reply = await running.user.call("POST", "/login", guess, via("203.0.113.1"))
            assert reply.status == 401
        assert (await running.user.call("POST", "/login", right, via("203.0.113.1"))).status == 429
        reply = await running.user.call("POST", "/login", right, via("198.51.100.7"))
        assert reply.status == (200 if proxies else 429)
    assert ("from=203.0.113.1" in caplog.text) == bool(proxies)
    assert "from=192.0.2.99" not in caplog.text


def test_what_is_no_address_of_a_proxy_is_refused_at_the_start(tmp_path: Path) -> None:
    """A name would be silently ignored."""
    with pytest.raises(IllegalArgument, match="consoleTrustedProxies has 'proxy'"):
        _security(ManualClock(), trusted_proxies="127.0.0.1, proxy")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8082", True),
        ("[::1]:8082", True),
        ("192.0.2.7", True),
        ("localhost:1", True),
        ("mq.example", True),
        ("MACHINE:8082", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[::1].evil.example", False),
        ("[::1]evil.example:80", False),
        ("127.0.0.1:80@evil.example", False),
        ("127.0.0.1:80.evil.example", False),
    ],
)
def test_only_names_of_this_console_are_answered(host: str, allowed: bool) -> None:
    """Conventions, security: DNS rebinding needs a name; addresses and known names pass."""
    config = ConsoleConfig(host_names="mq.example, other.example")
    security = Security(config, ManualClock(), machine_name="machine")
    if allowed:
        security.check_host(host)
    else:
        with pytest.raises(ApiError):
            security.check_host(host)


async def test_a_request_of_two_lengths_is_the_last_of_its_connection(tmp_path: Path) -> None:
    """A proxy that goes by the other length would take what follows for another client's."""
    async with site(tmp_path) as running:
        host = running.user.http.base_url.netloc.decode()
        reader, writer = await asyncio.open_connection(*host.split(":"))
        second = f"GET /api/session HTTP/1.1\r\nHost: {host}\r\n\r\n"
        lengths = f"Content-Length: {5 + len(second)}\r\nTransfer-Encoding: chunked\r\n"
        first = f"POST /api/login HTTP/1.1\r\nHost: {host}\r\n{lengths}\r\n0\r\n\r\n"
        writer.write((first + second).encode())
        answers = await reader.read()
        writer.close()
        assert answers.startswith(b"HTTP/1.1 400 ")
        assert answers.count(b"HTTP/1.1 ") == 1


def test_half_a_login_is_refused_at_the_start(tmp_path: Path) -> None:
    """A user without a password would leave the door open unnoticed."""
    with pytest.raises(IllegalArgument, match="consolePassword"):
        _security(ManualClock(), user="op")
    with pytest.raises(IllegalArgument, match="consoleUser"):
        _security(ManualClock(), password="secret")
    file = tmp_path / "password"
    file.write_text("secret\n")
    session_of = _security(ManualClock(), user="op", password_file=str(file))
    assert session_of.log_in(session_of.begin(), "op", "secret", "").user == "op"
    with pytest.raises(IllegalArgument, match="cannot read"):
        _security(ManualClock(), user="op", password_file=str(tmp_path / "none"))


_ODD = (
    "x",
    "%RETRY%x",
    "../../etc",
    "0",
    "-1",
    "9" * 20,
    "é",
    "a" * 3000,
    "\x00",
    "null",
    "[]",
    "1e9",
)
_ODD_JSON: tuple[Any, ...] = (*_ODD, 5, -5, 2**70, 1.5, True, None, [], {}, ["x"], {"a": "b"})
_NAMES = [
    "topic",
    "group",
    "id",
    "key",
    "begin",
    "end",
    "cursor",
    "size",
    "page",
    "type",
    "q",
    "broker",
    "queueId",
    "offset",
    "brokerId",
    "kind",
    "name",
    "since",
    "namespace",
    "traceTopic",
    "stack",
    "cluster",
    "keepOffsets",
    "readQueues",
    "writeQueues",
    "perm",
    "mode",
    "to",
    "ids",
    "settings",
    "writable",
    "user",
    "password",
    "value",
    "body",
    "properties",
    "brokers",
    "attributes",
    "from",
    "retryMaxTimes",
    "clientId",
    "delayLevel",
    "bodyEncoding",
]


async def test_odd_requests_get_clear_errors_and_reach_no_broker(
    tmp_path: Path,
) -> None:
    """Errors name the cause; odd names and values of every type, at every route."""
    chance = random.Random(7)
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/x", {"readQueues": 1, "writeQueues": 1})
        await user.do("PUT", "/groups/x", {})
        for route in (each for each in ROUTES if each.path not in ("/live", "/logout")):
            for _ in range(8):
                path = re.sub(r"{\w+}", lambda _: quote(chance.choice(_ODD), safe=""), route.path)
                query = {name: chance.choice(_ODD) for name in chance.sample(_NAMES, 4)}
                body = {name: chance.choice(_ODD_JSON) for name in chance.sample(_NAMES, 6)}
                reply = await user.call(
                    route.method,
                    f"{path}?{urlencode(query)}",
                    None if route.method == "GET" else body,
                )
                what = (route.method, path, query, body, reply.json)
                assert reply.status in (200, 202, 304) or reply.json["code"] not in (
                    "BUG",
                    "BROKER",
                ), what
