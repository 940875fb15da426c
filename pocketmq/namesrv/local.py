"""LocalRegistrar: registers a broker of the same process, by a call instead of a connection.

The protocols state what is needed of a broker's objects, so that neither package imports the other.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.route_info import BrokerRegistration, RouteInfo


class LocalBroker(Protocol):
    """How name servers identify a broker; addresses are `ip:port`."""

    @property
    def cluster(self) -> str: ...
    @property
    def broker_name(self) -> str: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def ha_address(self) -> str: ...


class TableVersion(Protocol):
    """The version of a topic table."""

    @property
    def timestamp(self) -> int: ...
    @property
    def counter(self) -> int: ...
    @property
    def state_version(self) -> int: ...


class LocalRegistrar:
    """Registers and removes brokers of this process."""

    def __init__(self, routes: RouteInfo, kv_config: KVConfig) -> None:
        self._routes = routes
        self._kv = kv_config

    def register(
        self,
        identity: LocalBroker,
        data_version: TableVersion,
        topics: Iterable[TopicConfig],
        *,
        are_changes: bool = False,
    ) -> Mapping[str, str]:
        """Register the broker and these topics, keeping its others; return ORDER_TOPIC_CONFIG.

        are_changes: they have just changed. The version may be that of a later change already, which this
        name server was told of first.
        """
        self._routes.register(
            BrokerRegistration(
                identity.cluster,
                identity.broker_name,
                identity.broker_id,
                identity.address,
                identity.ha_address,
                DataVersion(
                    data_version.timestamp, data_version.counter, data_version.state_version
                ),
                {topic.topic: topic for topic in topics},
                are_changes,
            ),
            None,
        )
        return self._kv.namespace(ORDER_TOPIC_CONFIG) or {}

    def unregister(self, identity: LocalBroker) -> None:
        """Remove the broker."""
        self._routes.unregister(identity.broker_name, identity.broker_id, identity.address, None)

    def let_go(self, identity: LocalBroker) -> None:
        """Keep the broker registered, but let another take its place."""
        self._routes.let_go(identity.address)

    def members(self, identity: LocalBroker) -> Mapping[str, str]:
        """Return the addresses of all brokers of this one's name, by id."""
        found = self._routes.member_group(identity.cluster, identity.broker_name)
        return {} if found is None else {str(n): each for n, each in found["brokerAddrs"].items()}

    def route(self, topic: str) -> Mapping[str, Any] | None:
        """Return TopicRouteData of a topic as JSON; None if no broker serves it."""
        return self._routes.route(topic)

    def announce(self, namespace: str, key: str, value: str | None) -> None:
        """Store a value for anyone to query; None deletes it. Raises: OSError."""
        if value is None:
            self._kv.delete(namespace, key)
        else:
            self._kv.put(namespace, key, value)

    def announced(self, namespace: str) -> Mapping[str, str]:
        """Return the values of a namespace by key."""
        return self._kv.namespace(namespace) or {}
