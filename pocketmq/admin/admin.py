"""Admin: the front door of administration.

    async with Admin(name_server="127.0.0.1:9876") as admin:
        await admin.topics.create("TopicTest", queues=4)

Attributes: topics, groups, messages, settings, users, doctor, balances, delays, schedules, replicas, site
(see their modules; site: the cluster's masters).
Names are complete: the option `namespace` is not prefixed to topics and groups here.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.groups import GroupAdmin
from pocketmq.admin.topics import TopicAdmin
from pocketmq.admin.types import ClusterBroker
from pocketmq.client import forks
from pocketmq.client.errors import ForkedClient
from pocketmq.client.network.api import MQClientApi
from pocketmq.client.network.requests import ApiRequests, Remoting
from pocketmq.client.options import ClientOptions, OptionRange, takes
from pocketmq.client.send.limits import OpenConnection
from pocketmq.remoting.command import RemotingCommand, SerializeType
from pocketmq.remoting.transport.client import RemotingClient
from pocketmq.remoting.transport.probe import what_listens
from pocketmq.remoting.transport.tls import client_context

if TYPE_CHECKING:
    from pocketmq.admin.balance import BalanceAdmin
    from pocketmq.admin.delays import DelayAdmin
    from pocketmq.admin.doctor import DoctorAdmin
    from pocketmq.admin.messages import MessageAdmin
    from pocketmq.admin.replicas import ReplicaAdmin
    from pocketmq.admin.schedules import ScheduleAdmin
    from pocketmq.admin.settings import SettingsAdmin
    from pocketmq.admin.users import UserAdmin


@dataclass(frozen=True, kw_only=True, eq=False)
class AdminOptions(ClientOptions):
    """Options of an Admin."""

    request_timeout_ms: Annotated[int, OptionRange(1), "for one request"] = 5_000
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
        own = _OfOneProcess(self._remoting)
        requests = ApiRequests(
            own if config.around is None else config.around(own),
            config.name_servers,
            timeout_ms=config.request_timeout_ms,
            encoding=SerializeType[config.header_encoding],
            what_listens=what_listens,
        )
        self._own = own
        self.clock = config.clock
        self._client_ip = config.client_ip
        self.site = Cluster(MQClientApi(requests))
        self.topics = TopicAdmin(self.site)
        self.groups = GroupAdmin(self.site)

    # Most commands need only topics and groups, and start the sooner without the rest.

    @cached_property
    def messages(self) -> "MessageAdmin":
        from pocketmq.admin.messages import MessageAdmin
        from pocketmq.model.unique_key import UniqueKeys

        keys = UniqueKeys(self._client_ip, self.clock)
        return MessageAdmin(self.site, self.topics, self.groups, self.clock, keys)

    @cached_property
    def settings(self) -> "SettingsAdmin":
        from pocketmq.admin.settings import SettingsAdmin

        return SettingsAdmin(self.site)

    @cached_property
    def users(self) -> "UserAdmin":
        from pocketmq.admin.users import UserAdmin

        return UserAdmin(self.site)

    @cached_property
    def balances(self) -> "BalanceAdmin":
        from pocketmq.admin.balance import BalanceAdmin

        return BalanceAdmin(self.site)

    @cached_property
    def doctor(self) -> "DoctorAdmin":
        from pocketmq.admin.doctor import DoctorAdmin

        return DoctorAdmin(self.site)

    @cached_property
    def delays(self) -> "DelayAdmin":
        from pocketmq.admin.delays import DelayAdmin

        return DelayAdmin(self.site, self.settings)

    @cached_property
    def schedules(self) -> "ScheduleAdmin":
        from pocketmq.admin.schedules import ScheduleAdmin

        return ScheduleAdmin(self.site, self.topics)

    @cached_property
    def replicas(self) -> "ReplicaAdmin":
        from pocketmq.admin.replicas import ReplicaAdmin

        return ReplicaAdmin(self.site)

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self.site.api.requests.name_servers

    async def __aenter__(self) -> Self:
        self._own.pid = os.getpid()
        await self._remoting.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        # In a forked child the connections are the parent's.
        if not self._own.is_inherited:
            await self._remoting.__aexit__(*raised)

    async def brokers(self, cluster: str | None = None) -> list[ClusterBroker]:
        """Return every broker address that the name servers know."""
        return await self.site.brokers(cluster)


class _OfOneProcess:
    """Sends requests of the process that started this client; a forked child is refused (client.forks)."""

    def __init__(self, inner: Remoting) -> None:
        self._inner = inner
        self.pid = os.getpid()

    @property
    def is_inherited(self) -> bool:
        return self.pid != os.getpid()

    def _check(self) -> None:
        if self.is_inherited:
            raise ForkedClient(forks.sentence("this admin client", self.pid))

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int = 3_000
    ) -> RemotingCommand:
        self._check()
        return await self._inner.invoke(address, command, timeout_ms)

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        self._check()
        await self._inner.oneway(address, command)

    def open_connection(self, address: str) -> OpenConnection | None:
        self._check()
        return self._inner.open_connection(address)

    @property
    def signs(self) -> bool:
        return self._inner.signs

    def encoded(self, command: RemotingCommand) -> bytes:
        return self._inner.encoded(command)
