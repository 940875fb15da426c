"""Admin: the front door of administration.

    async with Admin(name_server="127.0.0.1:9876") as admin:
        await admin.topics.create("TopicTest", queues=4)

Attributes: topics, groups, messages, settings, doctor, delays, replicas (see their modules), site (the
cluster's masters).
Names are complete: the option `namespace` is not prefixed to topics and groups here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from pocketmq.admin.cluster import Site
from pocketmq.admin.groups import Groups
from pocketmq.admin.topics import Topics
from pocketmq.admin.types import ClusterBroker
from pocketmq.client.network.api import MQClientApi
from pocketmq.client.network.probe import what_listens
from pocketmq.client.network.requests import Remoting
from pocketmq.client.options import ClientOptions, Range, takes
from pocketmq.remoting.command import Encoding
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.tls import client_context

if TYPE_CHECKING:
    from pocketmq.admin.delays import Delays
    from pocketmq.admin.doctor import Doctor
    from pocketmq.admin.messages import Messages
    from pocketmq.admin.replicas import Replicas
    from pocketmq.admin.settings import SiteSettings


@dataclass(frozen=True, kw_only=True, eq=False)
class AdminOptions(ClientOptions):
    """Options of an Admin."""

    request_timeout_ms: Annotated[int, Range(1), "for one request"] = 5_000
    around: Annotated[
        Callable[[Remoting], Remoting] | None,
        "wraps the connections, so that the caller can step in between",
    ] = None


class Admin:
    """Connections for administration; it sends no heartbeats, so no broker counts it as a client."""

    @takes(AdminOptions)
    def __init__(self, config: AdminOptions) -> None:
        """Create it without connecting. Raises: IllegalArgument for a bad option."""
        tls = config.tls
        self._remoting = RemotingClient(
            {},
            config.clock,
            connect_timeout_ms=config.connect_timeout_ms,
            tls=client_context() if tls is True else tls or None,
            before_send=config.credentials.sign if config.credentials else None,
        )
        api = MQClientApi(
            self._remoting if config.around is None else config.around(self._remoting),
            config.name_servers,
            timeout_ms=config.request_timeout_ms,
            encoding=Encoding[config.header_encoding],
            what_listens=what_listens,
        )
        self.clock = config.clock
        self._client_ip = config.client_ip
        self.site = Site(api)
        self.topics = Topics(self.site)
        self.groups = Groups(self.site)

    # Most commands need only topics and groups, and start the sooner without the rest.

    @cached_property
    def messages(self) -> "Messages":
        from pocketmq.admin.messages import Messages
        from pocketmq.model.unique_key import UniqueKeys

        keys = UniqueKeys(self._client_ip, self.clock)
        return Messages(self.site, self.topics, self.groups, self.clock, keys)

    @cached_property
    def settings(self) -> "SiteSettings":
        from pocketmq.admin.settings import SiteSettings

        return SiteSettings(self.site)

    @cached_property
    def doctor(self) -> "Doctor":
        from pocketmq.admin.doctor import Doctor

        return Doctor(self.site)

    @cached_property
    def delays(self) -> "Delays":
        from pocketmq.admin.delays import Delays

        return Delays(self.site, self.settings)

    @cached_property
    def replicas(self) -> "Replicas":
        from pocketmq.admin.replicas import Replicas

        return Replicas(self.site)

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self.site.api.name_servers

    async def __aenter__(self) -> Self:
        await self._remoting.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._remoting.__aexit__(*raised)

    async def brokers(self, cluster: str | None = None) -> list[ClusterBroker]:
        """Return every broker address that the name servers know."""
        return await self.site.brokers(cluster)
