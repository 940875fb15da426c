"""ReplicaAdmin: status of replication, and changes of role while the brokers run.

The status is RocketMQ 5's request 907, which PocketMQ answers with more fields; changing a role is
PocketMQ's own request 900004 (PocketRequestCode).
"""

import asyncio
from itertools import count
from typing import Any

from pocketmq.admin.cluster import Cluster, NoMaster
from pocketmq.admin.types import ClusterBroker
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.requests import ChangeRoleHeader, PocketRequestCode

# How often, and at what intervals, a slave is asked whether it follows.
_LOOKS_MAX = 50
_LOOK_S = 0.1


class ReplicaAdmin:
    """The operations of `admin.replicas`."""

    def __init__(self, site: Cluster) -> None:
        self._site = site

    async def find(self, broker: str | None, cluster: str | None = None) -> list[ClusterBroker]:
        """Return masters and slaves of a cluster, a name, or one `ip:port`; None: all. Raises: NoMaster."""
        found = [
            each
            for each in await self._site.brokers(cluster)
            if broker in (None, each.name, each.address)
        ]
        if not found:
            raise NoMaster(
                f"the name servers know no broker {broker!r}; see: pocketmq cluster list"
            )
        return found

    async def status(self, address: str) -> dict[str, Any]:
        """Return HARuntimeInfo of one broker. Raises: RemotingError."""
        answer = await self._site.api.requests.ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return dict(fastjson.loads(answer.body))

    async def change(
        self,
        address: str,
        act: str,
        *,
        role: str | None = None,
        force: bool = False,
        broker_id: int | None = None,
        target: str | None = None,
    ) -> None:
        """Promote, demote or resync one broker; or begin, hold, hand-to, end or undo a handover.

        broker_id: the new id of a demoted master; None: the first id free among the brokers of its name,
        since two with the same id replace each other in routes. Raises: BrokerRefused with its reason.
        """
        if act == "demote" and broker_id is None:
            broker_id = await self._free_id(address)
        header = ChangeRoleHeader(act, role, force, broker_id, target)
        await self._site.api.requests.ask(address, PocketRequestCode.CHANGE_ROLE, header, about=act)

    async def resync(self, address: str) -> list[str]:
        """Resync one broker, and wait until a slave follows. Returns: the files at the broker that keep what
        was cut off its log. Raises: BrokerRefused; TimeoutError with the reason why it does not follow.
        """
        status = await self.status(address)
        before = len(_following(status).get("cuts", ()))
        await self.change(address, "resync")
        for _ in range(_LOOKS_MAX):
            status = await self.status(address)
            following = _following(status)
            if status["master"] or following.get("isActivated"):
                return list(following.get("cuts", ()))[before:]
            await asyncio.sleep(_LOOK_S)
        raise TimeoutError(f"it does not follow: {status.get('trouble')}")

    async def _free_id(self, address: str) -> int:
        """Return the first slave id that is free among the brokers of the same name."""
        known = await self._site.brokers()
        names = {each.name for each in known if each.address == address}
        taken = {each.broker_id for each in known if each.name in names}
        return next(number for number in count(1) if number not in taken)


def _following(status: dict[str, Any]) -> dict[str, Any]:
    return status.get("haClientRuntimeInfo") or {}
