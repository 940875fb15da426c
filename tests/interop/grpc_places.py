"""Where the SDKs of RocketMQ 5 go: our broker in this process, or the real proxy 5.5.0 with its broker."""

import asyncio
import itertools
import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pocketmq.admin import Admin
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.credentials import Credentials
from pocketmq.testing.folders import MEMORY
from pocketmq.testing.in_process import InProcess
from tests.interop import toolchain
from tests.interop.brokers import JavaBroker
from tests.interop.processes import QUICK_JVM, Process
from tests.kit.ports import free_ports
from tests.kit.waiting import until

_NUMBERS = itertools.count(1)
T = TypeVar("T")


class Place(ABC):
    """grpc: `ip:port`."""

    grpc: str

    @abstractmethod
    def topic(self, kind: str) -> str:
        """A new topic of a message type."""

    @abstractmethod
    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        """A new consumer group."""

    def group(self, *, retry_max_times: int = 16, **extra: Any) -> str:
        name = f"group{next(_NUMBERS)}"
        return self.group_named(name, retry_max_times=retry_max_times, **extra)

    @abstractmethod
    def dead_letters(self, group: str) -> str:
        """The topic of a group's dead letters, which exists then."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """So much time goes by."""

    @abstractmethod
    def restart(self) -> None:
        """Stop and start it, with the same address and store."""

    @abstractmethod
    def count(self, topic: str) -> int:
        """Messages that were ever stored in a topic."""


class Ours(Place):
    """PocketMQ in this process, whose clock can be advanced."""

    def __init__(self, config: Mapping[str, object] | None = None, *, store: str = MEMORY) -> None:
        self.server = InProcess(
            {
                "transactionTimeOut": 1_000,
                "transactionCheckInterval": 1_000,
                "grpcClientConsumerMaxLongPollingTimeoutMillis": 5_000,
                **(config or {}),
            },
            store=store,
        )

    def __enter__(self) -> Self:
        self.server.start()
        self.grpc = self.server.grpc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.stop()

    # Not by an administrator's client, which would need an account of its own.
    def topic(self, kind: str) -> str:
        return self.topic_named(f"Topic{next(_NUMBERS)}", kind)

    def topic_named(self, name: str, kind: str) -> str:
        made = TopicConfig(name, 4, 4, attributes={"message.type": kind})

        async def make() -> None:
            self.server.running.parts.tables.topics.update(made)

        self.server.call(make())
        return made.topic

    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        made = GroupConfig(name, retry_max_times=retry_max_times, extra=extra)

        async def make() -> None:
            self.server.running.parts.tables.groups.update(made)

        self.server.call(make())
        return name

    def dead_letters(self, group: str) -> str:
        topic = f"%DLQ%{group}"
        tables = self.server.running.parts.tables
        until(lambda: tables.topics.get(topic), f"the topic {topic}")
        return topic

    def advance(self, seconds: float) -> None:
        self.server.clock.advance(seconds)

    def restart(self) -> None:
        self.server.restart()

    def count(self, topic: str) -> int:
        store = self.server.running.parts.messages.store
        return sum(store.max_offset(topic, queue) for queue in range(4))


ACCOUNT = Credentials("writer-key", "writer-secret")
"""Where accounts are asked for, this one may do everything."""
_AUTH = "org.apache.rocketmq.auth"


def _accounts(authentication: str, authorization: str) -> dict[str, object]:
    """The settings by which broker and proxy ask for ACCOUNT; args: the classes that know it."""
    user = {"username": ACCOUNT.access_key, "password": ACCOUNT.secret_key}
    inner = {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key}
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": authentication,
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(inner),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": authorization,
    }


class ProxyProcess(JavaBroker):
    """Apache's ProxyStartup 5.5.0 in local mode: proxy and broker in one JVM.

    closed: with ACCOUNT, and a certificate that names its address, as the one that it makes itself does not.
    """

    def __init__(
        self,
        folder: Path,
        heap: str = "512m",
        jvm: tuple[str, ...] = QUICK_JVM,
        *,
        closed: bool = False,
        namesrv: str | None = None,
    ) -> None:
        settings: dict[str, object] = {
            "recallMessageEnable": "true",
            "enableMixedMessageType": "true",
        }
        self._proxy_settings: dict[str, object] = {}
        if closed:
            local = f"{_AUTH}.{{0}}.provider.Local{{1}}MetadataProvider"
            settings |= _accounts(
                local.format("authentication", "Authentication"),
                local.format("authorization", "Authorization"),
            )
            there = "org.apache.rocketmq.proxy.auth.Proxy{}MetadataProvider"
            self._proxy_settings = {
                **_accounts(there.format("Authentication"), there.format("Authorization")),
                **_certificate(folder),
            }
        super().__init__(
            folder, version="5.5.0", heap=heap, jvm=jvm, config=settings, namesrv=namesrv
        )
        self.tls = closed
        # In front of the brokers of a name server, it has none of its own.
        self._is_alone = namesrv is not None
        self._class_path = toolchain.class_path("proxy-5.5.0")
        self.grpc_port, self._remoting_port = free_ports(2)

    def _start_broker(self, conf: Path) -> Process:
        proxy = self.folder / "proxy.json"
        settings = {
            "grpcServerPort": self.grpc_port,
            "remotingListenPort": self._remoting_port,
            "localServeAddr": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            **self._proxy_settings,
        }
        proxy.write_text(json.dumps(settings))
        words = ["-pm", "cluster"] if self._is_alone else ["-pm", "local", "-bc", str(conf)]
        words += ["-n", self.namesrv, "-pc", str(proxy)]
        return self._start("proxy.ProxyStartup", "proxy", *words)

    def wait_until_ready(self) -> None:
        until(lambda: "startup successfully" in self.log(), "the proxy")


def _certificate(folder: Path) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2"
    places = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    subprocess.run(
        [*command.split(), *places, "-out", str(certificate)], check=True, capture_output=True
    )
    return {
        "tlsTestModeEnable": False,
        "tlsKeyPath": str(key),
        "tlsCertPath": str(certificate),
    }


class Proxy(Place):
    """The real one."""

    def __init__(self, folder: Path, *, closed: bool = False) -> None:
        self._process = ProxyProcess(folder, closed=closed)
        self._process.start()
        self.grpc = f"127.0.0.1:{self._process.grpc_port}"
        self._credentials = ACCOUNT if closed else None

    def close(self) -> None:
        self._process.kill()

    def _as_admin(self, do: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        async def done() -> T:
            made = Admin(name_server=self._process.namesrv, credentials=self._credentials)
            async with made as admin:
                return await do(admin)

        return asyncio.run(done())

    def topic(self, kind: str) -> str:
        name = f"Topic{next(_NUMBERS)}"
        attributes = f"+message.type={kind}"
        self._as_admin(lambda admin: admin.topics.create(name, queues=4, attributes=attributes))
        self._until_known(name)
        return name

    def _until_known(self, topic: str) -> None:
        until(
            lambda: self._as_admin(lambda admin: admin.topics.exists(topic)),
            f"the route of {topic}",
        )

    def group_named(self, name: str, *, retry_max_times: int = 16, **extra: Any) -> str:
        made = GroupConfig(name, retry_max_times=retry_max_times, extra=extra)
        self._as_admin(lambda admin: admin.groups.create(made))
        return name

    def dead_letters(self, group: str) -> str:
        self._until_known(f"%DLQ%{group}")
        return f"%DLQ%{group}"

    def advance(self, seconds: float) -> None:
        # It has a clock of its own, and nothing to wait for: that nothing happens is what is asked.
        time.sleep(seconds)

    def restart(self) -> None:
        self._process.stop()
        self._process.start()

    def count(self, topic: str) -> int:
        return sum(
            each.max_offset for each in self._as_admin(lambda admin: admin.topics.status(topic))
        )
