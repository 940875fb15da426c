"""Source: the broker to migrate from, over remoting; Apache RocketMQ 4.9.7, 5.x, or ours.

How to stop sends was tried with both versions: removing the write permission does not (it hides the broker
from routes, but a send that still arrives is stored). `startAcceptSendRequestTimeStamp` does: once set, each
send is answered with SYSTEM_ERROR and stored nowhere.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.admin import Admin
from pocketmq.cli.migration.report import insisted
from pocketmq.model.names import MASTER_ID
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.transport.proxy import members_of

_C = RequestCode
_ACCEPT_FROM = "startAcceptSendRequestTimeStamp"
_LOOK_S = 1.0
_TEN_YEARS_MS = 10 * 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a broker reports of itself. topics, groups: the rows of their tables by name."""

    settings: Mapping[str, str]
    runtime: Mapping[str, str]
    topics: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, Any]]
    static_topics: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return self.runtime.get("brokerVersionDesc", "")

    @property
    def log_size(self) -> int:
        runtime = self.runtime
        return int(runtime["commitLogMaxOffset"]) - int(runtime["commitLogMinOffset"])


class Source:
    """One broker. numbers: the ids in use under its name."""

    def __init__(
        self, admin: Admin, name: str, cluster: str, address: str, numbers: set[int]
    ) -> None:
        self.admin = admin
        self.name = name
        self.cluster = cluster
        self.address = address
        self.numbers = numbers
        self._accepted_from: str | None = None

    @staticmethod
    async def found(admin: Admin, name: str) -> "Source":
        """Return the master of this name. Raises: NoMaster, PocketMQError."""
        master = (await admin.site.masters(broker=name))[0]
        known = await admin.brokers(master.cluster)
        numbers = {each.broker_id for each in known if each.name == master.name}
        return Source(admin, master.name, master.cluster, master.address, numbers)

    @property
    def free_number(self) -> int:
        """Return an id for another slave."""
        return next(n for n in range(1, len(self.numbers) + 2) if n not in self.numbers)

    async def _json(self, code: RequestCode) -> Any:
        answer = await self.admin.site.api.requests.ask(self.address, code)
        return fastjson.loads(answer.body) if answer.body else {}

    async def facts(self) -> BrokerFacts:
        """Query the broker. Raises: PocketMQError."""
        settings = self.admin.settings
        topics = await self._json(_C.GET_ALL_TOPIC_CONFIG)
        groups = await self._json(_C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return BrokerFacts(
            await settings.broker(self.address),
            await settings.runtime(self.address),
            topics["topicConfigTable"],
            groups["subscriptionGroupTable"],
            tuple(sorted(topics.get("topicQueueMappingDetailMap") or ())),
        )

    async def pending(self) -> tuple[int, int]:
        """Return the number of undelivered timers and of pops, of up to 32 messages each, that are not
        acknowledged; for a broker of ours.

        Raises: PocketMQError.
        """
        runtime = await self.admin.settings.runtime(self.address)
        status = await self.admin.replicas.status(self.address)
        # A timer that was stored just now is not among those that are taken in.
        timers = int(runtime.get("timerCongestNum", 0)) + int(runtime.get("timerOffsetBehind", 0))
        return timers, int(status.get("popped", 0))

    async def drained(self, say: Callable[[str], None]) -> None:
        """Wait until nothing is pending that RocketMQ 4.9 would never deliver. Raises: PocketMQError."""
        shown = (0, 0)
        while any(left := await self.pending()):
            if left != shown:
                say(f"waiting for {left[0]} timers and {left[1]} pops")
            shown = left
            await asyncio.sleep(_LOOK_S)

    async def is_there(self) -> bool:
        """Return True if it answers at all."""
        try:
            await self.admin.settings.runtime(self.address)
        except (PocketMQError, OSError):
            return False
        return True

    async def knows(self, heartbeat: RemotingCommand) -> bool:
        """Return True if the consumers of this heartbeat are already members there. Raises nothing."""
        try:
            client, groups = members_of(heartbeat)
            for group in groups:
                if client not in await self.admin.site.api.consumer_ids(self.address, group):
                    return False
        except (PocketMQError, OSError, LookupError, TypeError, ValueError):
            return False
        return bool(groups)

    @property
    def refuses_sends(self) -> bool:
        """Return True if it may refuse sends, because refuse_sends() was called last."""
        return self._accepted_from is not None

    async def refuse_sends(self) -> None:
        """Make it refuse sends. Raises: PocketMQError."""
        settings = self.admin.settings
        self._accepted_from = (await settings.broker(self.address)).get(_ACCEPT_FROM, "0")
        far = self.admin.clock.now_ms() + _TEN_YEARS_MS
        await settings.update_broker(self.address, **{_ACCEPT_FROM: str(far)})

    async def accept_sends(self) -> None:
        """Make it accept sends as before, whatever it takes. Raises: MigrationRefused, BrokerRefused."""
        before = self._accepted_from
        if before is None:
            return

        async def accept() -> None:
            await self.admin.settings.update_broker(self.address, **{_ACCEPT_FROM: before})

        await insisted(
            accept,
            f"{self.address} still refuses sends: run mqadmin updateBrokerConfig -b "
            f"{self.address} -k {_ACCEPT_FROM} -v {before}",
        )
        self._accepted_from = None

    async def register(self) -> None:
        """Make it register at its name servers at once, which setting its permission does.

        Raises: MigrationRefused, BrokerRefused.
        """
        settings = self.admin.settings

        async def permit() -> None:
            perm = (await settings.broker(self.address)).get("brokerPermission", "6")
            await settings.update_broker(self.address, brokerPermission=perm)

        await insisted(
            permit, f"{self.address} is not registered yet: it registers by itself in half a minute"
        )

    async def is_routed_to(self, address: str) -> bool:
        """Return True if every name server names this address as the master. Raises: PocketMQError."""
        for name_server in self.admin.name_servers:
            answer = await self.admin.site.api.requests.ask(name_server, _C.GET_BROKER_CLUSTER_INFO)
            table = fastjson.loads(answer.body).get("brokerAddrTable") or {}
            addresses = (table.get(self.name) or {}).get("brokerAddrs") or {}
            if {str(key): value for key, value in addresses.items()}.get(str(MASTER_ID)) != address:
                return False
        return True
