"""Cluster: the cluster as administration sees it: its masters, and which brokers to ask about what."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from pocketmq.admin.types import ClusterBroker
from pocketmq.client.errors import NoRoute
from pocketmq.client.network.api import MQClientApi
from pocketmq.client.network.route import TopicRoute
from pocketmq.model.names import MASTER_ID, RETRY_PREFIX
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.header import Header
from pocketmq.remoting.requests import PocketRequestCode


class NoMaster(IllegalArgument):
    """No broker of this name, or none at all, is registered."""


class Cluster:
    """Look-ups for all subjects of administration; nothing is cached."""

    def __init__(self, api: MQClientApi) -> None:
        self.api = api

    async def brokers(self, cluster: str | None = None) -> list[ClusterBroker]:
        """Return every broker address that the name servers know, by cluster, name and id.

        Raises: IllegalArgument if the cluster is unknown.
        """
        found = await self.api.requests.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        data = fastjson.loads(found.body)
        names = {
            str(name): [str(each) for each in members]
            for name, members in (data.get("clusterAddrTable") or {}).items()
        }
        if cluster is not None and cluster not in names:
            raise IllegalArgument(
                f"there is no cluster {cluster!r}; known clusters: {', '.join(sorted(names)) or 'none'}"
            )
        wanted = None if cluster is None else set(names[cluster])
        return sorted(
            (
                ClusterBroker(
                    str(broker.get("cluster") or ""), str(name), int(number), str(address)
                )
                for name, broker in (data.get("brokerAddrTable") or {}).items()
                if wanted is None or name in wanted
                for number, address in broker["brokerAddrs"].items()
            ),
            key=lambda each: (each.cluster, each.name, each.broker_id),
        )

    async def masters(
        self, cluster: str | None = None, broker: str | None = None
    ) -> list[ClusterBroker]:
        """Return the masters of a cluster, of one broker name or `ip:port`, or all.

        Raises: NoMaster without one, IllegalArgument for an unknown cluster.
        """
        found = [
            each
            for each in await self.brokers(cluster)
            if each.broker_id == MASTER_ID and broker in (None, each.name, each.address)
        ]
        if not found:
            what = f"broker {broker!r}" if broker else f"cluster {cluster!r}" if cluster else "site"
            raise NoMaster(f"the name servers know no master of {what}")
        return found

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises: NoRoute."""
        return await self.api.topic_route(topic)

    async def masters_of(self, topic: str) -> list[tuple[str, str]]:
        """Return (broker name, address) of the topic's brokers, a slave's where the master is down.

        Raises: NoRoute.
        """
        return _reachable(await self.route(topic))

    async def masters_of_group(self, group: str) -> list[tuple[str, str]]:
        """Return the brokers that know a group: those of its retry topic; without a route, every master."""
        try:
            return await self.masters_of(RETRY_PREFIX + group)
        except NoRoute:
            return [(each.name, each.address) for each in await self.masters()]

    async def ask_each(
        self,
        brokers: Iterable[ClusterBroker | tuple[str, str]],
        code: RequestCode | PocketRequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        about: str = "",
        skipping: tuple[type[PocketMQError], ...] = (),
    ) -> AsyncIterator[tuple[str, Any]]:
        """Yield name and answer, JSON or None, of brokers or (name, address), asked one after the other.

        skipping: brokers that answer with one of these errors are left out. Raises: any other.
        """
        for each in brokers:
            name, address = (each.name, each.address) if isinstance(each, ClusterBroker) else each
            try:
                answer = await self.api.requests.ask(address, code, header, body, about=about)
            except skipping:
                continue
            yield name, fastjson.loads(answer.body) if answer.body else None

    async def tell_each(
        self,
        brokers: Iterable[ClusterBroker],
        code: RequestCode | PocketRequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        about: str = "",
    ) -> list[str]:
        """Send a command to each of them. Returns: their names. Raises: the first refusal."""
        return [name async for name, _ in self.ask_each(brokers, code, header, body, about=about)]


def _reachable(route: TopicRoute) -> list[tuple[str, str]]:
    return [
        (broker.broker_name, broker.addresses[min(broker.addresses)])
        for broker in route.brokers
        if broker.addresses
    ]


def unique(items: Iterable[str]) -> list[str]:
    """Return them sorted, without duplicates."""
    return sorted(set(items))
