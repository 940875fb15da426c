"""Transport: kombu's connection to a cluster, `pocketmq://user:password@host:port/cluster`.

Several name servers of one cluster: `pocketmq://host:port;host:port/cluster`. Several clusters, one after the
other: `pocketmq://host:port;pocketmq://host:port`. Transport options:

    queue_name_prefix   goes before the topics of queues, to keep applications apart (default: none)
    queues              queues of a new topic (default 1, which keeps the order)
    invisible_time      seconds after which a message of a worker that died comes again (default 60)
    eta_min             seconds: a task that is due sooner is held by a worker (default 0: none is)
    eta_hop             seconds that a task waits in the broker at once (default 172,800); then it is sent on
"""

from importlib.metadata import version
from time import monotonic
from typing import Any

from kombu.transport import base, virtual
from kombu.utils.url import parse_url

from pocketmq.client import Credentials
from pocketmq.client.errors import (
    CallerError,
    ForkedClient,
    NoRoute,
    NotRunning,
    OutcomeUnknown,
    TransientError,
)
from pocketmq.integrations.kombu import link as links
from pocketmq.integrations.kombu.bell import Bell
from pocketmq.integrations.kombu.channel import Channel
from pocketmq.integrations.kombu.envelope import EtaWaits
from pocketmq.integrations.kombu.link import Link, Where
from pocketmq.remoting.errors import IllegalArgument, RemotingError, RequestRefused

DEFAULT_PORT = 9876

# What connecting again may mend.
_LOST = (
    TransientError,
    OutcomeUnknown,
    RemotingError,
    ForkedClient,
    NotRunning,
    NoRoute,
    IllegalArgument,
    OSError,
)


class Transport(virtual.Transport):
    """Owner: a kombu Connection. bell: rings when a channel has something to deliver."""

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "pocketmq"
    driver_name = "pocketmq"
    connection_errors = base.Transport.connection_errors + _LOST
    recoverable_connection_errors = connection_errors
    channel_errors = (*base.Transport.channel_errors, RequestRefused, CallerError)
    recoverable_channel_errors = base.Transport.channel_errors

    implements = base.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._link: Link | None = None
        self.bell: Bell
        self._loop: Any = None
        options = client.transport_options
        self.waits = EtaWaits(
            int(1000 * options.get("eta_min", 0)), int(1000 * options.get("eta_hop", 172_800))
        )

    def driver_version(self) -> str:
        return version("pocketmq")

    def running_link(self) -> Link:
        """Return the link. Raises: NotRunning, ForkedClient."""
        if self._link is None:
            raise NotRunning("this connection is closed: connect again")
        if self._link.is_inherited:
            raise ForkedClient(
                "this connection is of the process that forked this one: connect here"
            )
        return self._link

    # ------------------------------------------------------------ life

    def establish_connection(self) -> "Transport":
        self._link = links.acquire(where(self.client))
        self.bell = Bell()
        try:
            super().establish_connection()
        except BaseException:
            self._leave()
            raise
        return self

    def close_connection(self, connection: Any) -> None:
        if self._link is None:
            return
        super().close_connection(connection)
        self._leave()

    def _leave(self) -> None:
        link, self._link = self._link, None
        if self._loop is not None:
            self.unregister_from_event_loop(self, self._loop)
        self.bell.close()
        if link is not None:
            links.release(link)

    # ------------------------------------------------------------ delivering

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver what one look at the broker brought. Raises: socket.timeout if nothing came in time."""
        ends = None if timeout is None else monotonic() + timeout
        while not self._deliver_once():
            self.running_link()
            left = None if ends is None else max(0.0, ends - monotonic())
            if not self.bell.wait(left):
                raise TimeoutError

    def _deliver_once(self) -> bool:
        return any(channel.deliver() for channel in list(self.channels))

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._loop = loop
        loop.add_reader(self.bell.fileno(), self._on_bell)
        # For what came before.
        self.bell.ring()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        self._loop = None
        loop.remove_reader(self.bell.fileno())

    def _on_bell(self) -> None:
        self.bell.quiet()
        while self._link is not None and self._deliver_once():
            pass


def where(client: Any) -> Where:
    """Return the cluster that a kombu Connection names."""
    options = client.transport_options
    listed = [each for each in client.alt or () if isinstance(each, str)]
    name_servers = [_address(client.hostname or "localhost", client.port)]
    paths = [client.virtual_host]
    if any("://" not in each for each in listed):
        # One URL with several addresses: kombu takes it for several URLs.
        parts = [parse_url(each if "://" in each else f"pocketmq://{each}") for each in listed]
        name_servers = [_address(part["hostname"] or "localhost", part["port"]) for part in parts]
        paths = [part["virtual_host"] for part in parts]
    return Where(
        ";".join(dict.fromkeys(name_servers)),
        cluster=next((path for each in paths if (path := (each or "").strip("/"))), None),
        credentials=Credentials(client.userid, client.password or "") if client.userid else None,
        tls=_tls(client.ssl),
        prefix=str(options.get("queue_name_prefix", "")),
        queues=int(options.get("queues", 1)),
        invisible_ms=int(1000 * options.get("invisible_time", 60)),
        connect_timeout_ms=int(1000 * (client.connect_timeout or 3)),
    )


def _address(hostname: str, port: int | None) -> str:
    # After a switch to an address without a scheme, kombu leaves it whole.
    host = hostname.partition("/")[0]
    return host if ":" in host else f"{host}:{port or DEFAULT_PORT}"


def _tls(ssl: Any) -> Any:
    return ssl.get("context", True) if isinstance(ssl, dict) else ssl or False
