"""Who gets what from the console: every route, one kind of caller after the other. Over real HTTP."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from pocketmq.console.api.routes import ROUTES
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.security import Security
from pocketmq.remoting.clock import SystemClock
from tests.console.console_peer import User, browser, site

RECORDED = Path(__file__).with_name("access.txt")
LOGIN = {"user": "op", "password": "secret"}
OTHERS = ("/metrics", "/health", "/ready", "/", "/topics", "/favicon.ico", "/static/x/main.js")
# Leaving is tried last: who has left is a stranger.
ASKED = sorted(
    [(each.method, f"/api{each.path}") for each in ROUTES] + [("GET", path) for path in OTHERS],
    key=lambda asked: (asked[1].startswith("/api/logout"), asked[1], asked[0]),
)


@dataclass
class Caller:
    """A cookie, and what goes with a request that changes something. port: of the console."""

    http: httpx.AsyncClient
    cookie: str = ""
    token: str = ""
    more: dict[str, str] = field(default_factory=dict)

    async def walk(self) -> dict[tuple[str, str], str]:
        """What each route says to it: yes, or the status of its refusal."""
        found = {}
        for method, path in ASKED:
            headers = dict(self.more)
            if self.cookie:
                headers["Cookie"] = f"pocketmq_{self.http.base_url.port}={self.cookie}"
            if method != "GET":
                headers |= {"Content-Type": "application/json", "X-CSRF-Token": self.token}
            there = re.sub(r"{\w+}", "x", path)
            content = None if method == "GET" else b"{}"
            self.http.cookies.clear()
            # A live answer has no end.
            async with self.http.stream(method, there, content=content, headers=headers) as answer:
                status = answer.status_code
            found[method, path] = str(status) if status in (401, 403) else "yes"
        return found


async def logged_in(user: User, http: httpx.AsyncClient) -> Caller:
    user.http.cookies.clear()
    await user.open()
    [before] = user.http.cookies.values()
    answer = await user.call("POST", "/login", LOGIN)
    assert answer.status == 200
    [cookie] = user.http.cookies.values()
    # No client can have known it before.
    assert cookie != before
    return Caller(http, cookie, answer.json["csrfToken"])


async def test_each_route_is_open_to_whom_the_recorded_table_says(tmp_path: Path) -> None:
    """A cookie of another console, of an ended session or of no user opens nothing that a login closes."""
    columns: dict[str, dict[tuple[str, str], str]] = {}
    async with (
        site(tmp_path / "login", console=LOGIN) as running,
        browser(running.console) as nobody,
    ):
        user, http = running.user, nobody.http
        [anonymous], token = user.http.cookies.values(), user.token
        columns["stranger"] = await Caller(http).walk()
        elsewhere = Security(ConsoleConfig(**LOGIN), SystemClock())  # type: ignore[arg-type]
        theirs = elsewhere.begin("op")
        body, _, mac = anonymous.rpartition(".")
        named = bytes.fromhex(body).replace(b"null", b'"op"').hex()
        left = await logged_in(user, http)
        assert (await user.call("POST", "/logout", {}, {"X-CSRF-Token": left.token})).status == 200
        here = await logged_in(user, http)
        without = [
            Caller(http, elsewhere.cookie(theirs), elsewhere.csrf_token(theirs)),
            Caller(http, f"{named}.{mac}", token),
            Caller(http, left.cookie, left.token),
            Caller(http, more={"Authorization": "Bearer op"}),
        ]
        for stranger in without:
            assert await stranger.walk() == columns["stranger"]
        columns["stranger's session"] = await Caller(http, anonymous, token).walk()
        columns["another site"] = await Caller(http, here.cookie).walk()
        evil = {"Origin": f"http://evil.example:{http.base_url.port}"}
        others = [
            Caller(http, here.cookie, left.token),
            Caller(http, here.cookie, here.token, evil),
            Caller(http, here.cookie, here.token, {"Origin": "null"}),
        ]
        for other in others:
            assert await other.walk() == columns["another site"]
        columns["user"] = await here.walk()
        assert await here.walk() == columns["stranger"]
    async with site(tmp_path / "reader", console={"host": "0.0.0.0"}) as running:
        [cookie] = running.user.http.cookies.values()
        async with browser(running.console) as nobody:
            columns["reader"] = await Caller(nobody.http, cookie, running.user.token).walk()
            # What another site's page lets a browser fetch, which tells the page nothing but costs brokers.
            foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            columns["fetched elsewhere"] = await Caller(nobody.http, more=foreign).walk()
            clicked = {**foreign, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
            for asked, said in (await Caller(nobody.http, more=clicked).walk()).items():
                assert asked[0] != "GET" or said == columns["reader"][asked]
    lines = [f"{'':44} " + " ".join(f"{name:18}" for name in columns).rstrip()]
    for asked in ASKED:
        said = " ".join(f"{column[asked]:18}" for column in columns.values())
        lines.append(f"{' '.join(asked):44} {said}".rstrip())
    table = "\n".join(lines) + "\n"
    assert table == RECORDED.read_text(encoding="utf-8"), table
