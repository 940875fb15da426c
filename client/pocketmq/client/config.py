"""What every client can be told: where the name servers are, who it is, how it speaks.

`ClientOptions` are the keyword arguments that Producer, PushConsumer, LitePullConsumer, PullConsumer and
Admin share; `ClientConfig` is the same after defaults, checked. Times are in ms, and RocketMQ's own.
"""

import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from pocketmq.client.top_addressing import is_lookup, look_up
from pocketmq.remoting.clock import Clock, SystemClock
from pocketmq.remoting.credentials import Credentials
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import nearest

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"


Transport = Callable[[AsyncExitStack, Mapping[int, Any]], Awaitable[Any]]
"""transport(stack, handlers): enter into the stack what carries requests, and return it (`api.Remoting`);
handlers answer what comes from the other side, by request code."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of every client; each has a default.

    name_server: addresses `host:9876` joined by `;`, or an http URL with a path that answers with such a
        line (asked for in the constructor, which waits for it, and every two minutes); default
        $NAMESRV_ADDR.
    instance_name: clients of one process that name the same instance share connections, timers and the
        client id; by default each has its own. client_ip: the address in the client id.
    unit_name: added to the client id. namespace: prefix of all topics and groups.
    credentials: to sign requests with. tls: True (not verified, as RocketMQ does) or an SSLContext.
    header_encoding: "JSON" or "ROCKETMQ". request_timeout_ms: for calls that have no time-out of
        their own. clock, transport: time and network as tests want them.
    """

    name_server: str | None
    instance_name: str
    client_ip: str
    unit_name: str
    namespace: str
    credentials: Credentials | None
    tls: ssl.SSLContext | bool
    header_encoding: str
    request_timeout_ms: int
    connect_timeout_ms: int
    poll_name_server_interval_ms: int
    heartbeat_interval_ms: int
    persist_offset_interval_ms: int
    rebalance_interval_ms: int
    clock: Clock
    transport: Transport | None


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Checked options; `name_servers` is never empty. name_server_url: where they are asked for."""

    name_servers: tuple[str, ...]
    name_server_url: str | None = None
    instance_name: str | None = None
    client_ip: str = ""
    unit_name: str | None = None
    namespace: str | None = None
    credentials: Credentials | None = None
    tls: ssl.SSLContext | bool = False
    header_encoding: str = "JSON"
    request_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    poll_name_server_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000
    persist_offset_interval_ms: int = 5_000
    rebalance_interval_ms: int = 20_000
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state
    transport: Transport | None = None

    @classmethod
    def of(cls, options: ClientOptions) -> "ClientConfig":
        """Raises: IllegalArgument for an unknown option, no name server or a value out of range;
        NameServersNotFound."""
        unknown = set(options) - set(ClientOptions.__annotations__)
        if unknown:
            name = min(unknown)
            raise TypeError(
                f"there is no option {name!r}" + nearest(name, ClientOptions.__annotations__)
            )
        given = dict(options)
        url, name_servers = find_name_servers(options.get("name_server"))
        given.pop("name_server", None)
        given["name_server_url"] = url
        given = {name: value for name, value in given.items() if value is not None}
        given.setdefault("client_ip", local_ip(name_servers[0]))
        config = cls(name_servers, **given)  # type: ignore[arg-type]
        if config.header_encoding not in ("JSON", "ROCKETMQ"):
            raise IllegalArgument(
                f'header_encoding must be "JSON" or "ROCKETMQ", not {config.header_encoding!r}'
            )
        for name in ClientOptions.__annotations__:
            value = getattr(config, name, None)
            if name.endswith("_ms") and isinstance(value, int) and value <= 0:
                raise IllegalArgument(f"{name} must be more than 0 ms, not {value}")
        return config

    def client_id(self, default_instance: str) -> str:
        """`ip@instance[@unit]`: who this client is at the broker (wire.md 4.3)."""
        parts = [self.client_ip, self.instance_name or default_instance]
        if self.unit_name:
            parts.append(self.unit_name)
        return "@".join(parts)

    @property
    def connection_key(self) -> tuple[object, ...]:
        """What clients that share an instance must agree on."""
        where = self.name_server_url or self.name_servers
        return (where, self.credentials, self.tls, self.header_encoding)


def config_of(**options: Unpack[ClientOptions]) -> ClientConfig:
    """ClientConfig.of, from keyword arguments."""
    return ClientConfig.of(options)


def find_name_servers(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The URL to ask, if it is one, and the addresses. Raises: IllegalArgument, NameServersNotFound."""
    given = text if text is not None else os.environ.get(NAME_SERVER_VARIABLE)
    if given is not None and is_lookup(given):
        return given, parse_name_servers(look_up(given))
    return None, parse_name_servers(given)


def parse_name_servers(text: str | None) -> tuple[str, ...]:
    """`a:9876;b:9876` -> addresses; None takes $NAMESRV_ADDR. Raises: IllegalArgument."""
    given = text if text is not None else os.environ.get(NAME_SERVER_VARIABLE)
    if not given:
        raise IllegalArgument(
            'no name server is given: pass name_server="host:9876" (several joined by ;) or set '
            f"{NAME_SERVER_VARIABLE}"
        )
    found = []
    for part in given.replace(",", ";").split(";"):
        address = part.strip().rpartition("/")[2]
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon:
            host, port = address, "9876"
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise IllegalArgument(f"name server {part.strip()!r} is not host:port")
        found.append(f"{host}:{port}")
    if not found:
        raise IllegalArgument(f"name server {given!r} names no address; write host:9876")
    return tuple(dict.fromkeys(found))


def local_ip(towards: str) -> str:
    """The own address from which `towards` (host:port) is reached; nothing is sent.

    127.0.0.1 when the machine knows no way there.
    """
    host, _, port = towards.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return "127.0.0.1"


_started = 0


def own_instance_name() -> str:
    """`pid#nanoseconds`: a name that no other client has. Source: ClientConfig.changeInstanceNameToPID."""
    global _started
    # A coarse clock may give the same time twice.
    _started = max(time.monotonic_ns(), _started + 1)
    return f"{os.getpid()}#{_started}"
