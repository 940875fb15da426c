"""A name server, brokers and a console in this process, and a user of the console's API over real HTTP."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from pocketmq.admin import Admin
from pocketmq.admin.views.topic import kind_of_topic
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer
from pocketmq.namesrv import NamesrvConfig
from pocketmq.namesrv.name_server import NameServer
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.credentials import Credentials
from pocketmq.store import StoreConfig

WAIT_S = 60
# Objects of the API whose keys are names or types, not the API's own words.
_NAMES = {
    *("runtime", "settings", "changed", "properties", "counts", "addresses", "attributes"),
    *("fields", "statuses", "topics"),
}


def misspelt(value: Any) -> set[str]:
    """The keys of an answer that are not camelCase."""
    if isinstance(value, list):
        return {key for each in value for key in misspelt(each)}
    if not isinstance(value, dict):
        return set()
    inner = [
        misspelt(each) for key, each in value.items() if key not in _NAMES or isinstance(each, list)
    ]
    return {key for key in value if not re.fullmatch(r"[a-z][a-zA-Z0-9]*", key)}.union(*inner)


@dataclass
class Reply:
    """status and the JSON of an answer; headers with small letters."""

    status: int
    json: Any
    headers: Mapping[str, str]
    content: bytes


@dataclass
class User:
    """One browser's worth: cookies and the token."""

    http: httpx.AsyncClient
    token: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    async def open(self) -> dict[str, Any]:
        session: dict[str, Any] = (await self.get("/session")).json
        self.token = session["csrfToken"]
        return session

    async def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        content = None if body is None else json.dumps(body).encode()
        sent = {**self.extra, **(headers or {})}
        if method != "GET":
            sent.setdefault("X-CSRF-Token", self.token)
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        answer = await self.http.request(method, f"/api{path}", content=content, headers=sent)
        kind = answer.headers.get("content-type", "")
        found = json.loads(answer.content) if kind == "application/json" else None
        assert not misspelt(found), path
        return Reply(answer.status_code, found, dict(answer.headers), answer.content)

    async def get(self, path: str, **query: Any) -> Reply:
        text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        return await self.call("GET", f"{path}?{text}" if text else path)

    async def read(self, path: str, **query: Any) -> Any:
        """The JSON of an answer 200."""
        reply = await self.get(path, **query)
        assert reply.status == 200, reply.json
        return reply.json

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The first call of a dangerous action: what it would do."""
        reply = await self.call(method, path, body)
        assert reply.status == 202, reply.json
        found: dict[str, Any] = reply.json
        return found

    async def do(self, method: str, path: str, body: Any = None) -> Any:
        """Change something; asked for a confirmation, confirm."""
        reply = await self.call(method, path, body)
        if reply.status == 202:
            confirm = {"X-Confirm": reply.json["confirm"]}
            reply = await self.call(method, path, body, confirm)
        assert reply.status == 200, reply.json
        return reply.json


@dataclass
class Site:
    """What runs: name_server is `ip:port`; brokers by name."""

    name_server: str
    brokers: dict[str, Broker]
    console: ConsoleServer
    user: User

    async def admin_topics(self) -> list[str]:
        """Names of the topics that the name server knows and users made."""
        async with Admin(name_server=self.name_server) as admin:
            own = {"b", "DefaultCluster"}
            return [
                name
                for name in await admin.topics.names()
                if kind_of_topic(name, None, frozenset(own)) == "NORMAL"
            ]


@asynccontextmanager
async def site(
    folder: Path,
    *,
    brokers: tuple[str, ...] = ("b",),
    console: Mapping[str, Any] | None = None,
    store: Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """A cluster of small brokers with a console and a user who has opened it. credentials: the console's."""
    config = ConsoleConfig(port=0, sample_interval_ms=500, **(console or {}))
    async with AsyncExitStack() as stack:
        name_server = NameServer(NamesrvConfig(listen_port=0), SystemClock())
        await stack.enter_async_context(name_server)
        await name_server.listen()
        running: dict[str, Broker] = {}
        for name in brokers:
            broker = Broker(
                BrokerConfig(broker_name=name, listen_port=0, **settings),
                StoreConfig(
                    store_path_root_dir=str(folder / name),
                    mapped_file_size_commit_log=1 << 23,
                    max_hash_slot_num=1000,
                    max_index_num=4000,
                    **(store or {}),
                ),
                clock=SystemClock(),
                name_server=name_server.local,
            )
            running[name] = await stack.enter_async_context(broker)
        server = ConsoleServer(
            config,
            {"name_server": name_server.address, "credentials": credentials},
            SystemClock(),
            here=tuple(running.values()),
        )
        await stack.enter_async_context(server)
        user = await stack.enter_async_context(browser(server))
        await user.open()
        yield Site(name_server.address, running, server, user)


@asynccontextmanager
async def browser(server: ConsoleServer) -> AsyncIterator[User]:
    """Another user's browser: no cookie, no token yet."""
    address = server.address.replace("0.0.0.0", "127.0.0.1")
    async with httpx.AsyncClient(base_url=address, timeout=WAIT_S, trust_env=False) as http:
        yield User(http)
