"""LocalRegistrar: how a broker of the same process is entered, by a call instead of a connection.

The types say what is asked of a broker's own objects, so that neither room imports the other.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pocketmq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.route_info import Registration, RouteInfo
from pocketmq.remoting.data_version import DataVersion
from pocketmq.remoting.tables import TopicConfig


class Identity(Protocol):
    """What a name server knows a broker by; addresses are `ip:port`."""

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


class LocalRegistrar:
    """Enters and removes brokers of this process."""

    def __init__(self, routes: RouteInfo, kv_config: KVConfig) -> None:
        self._routes = routes
        self._kv = kv_config

    def register(
        self, identity: Identity, data_version: TableVersion, topics: Iterable[TopicConfig]
    ) -> Mapping[str, str]:
        """Enter the broker and these topics, others that it had stay; returns ORDER_TOPIC_CONFIG."""
        self._routes.register(
            Registration(
                identity.cluster,
                identity.broker_name,
                identity.broker_id,
                identity.address,
                identity.ha_address,
                DataVersion(data_version.timestamp, data_version.counter),
                {topic.topic: topic for topic in topics},
            ),
            None,
        )
        return self._kv.namespace(ORDER_TOPIC_CONFIG) or {}

    def unregister(self, identity: Identity) -> None:
        """Remove the broker."""
        self._routes.unregister(identity.broker_name, identity.broker_id, identity.address, None)

    def let_go(self, identity: Identity) -> None:
        """Keep the broker, but let another take its place."""
        self._routes.let_go(identity.address)

    def route(self, topic: str) -> Mapping[str, Any] | None:
        """TopicRouteData of a topic as JSON; None when no broker serves it."""
        return self._routes.route(topic)

    def announce(self, namespace: str, key: str, value: str | None) -> None:
        """Keep a value for whoever asks; None: no longer. Raises: OSError."""
        if value is None:
            self._kv.delete(namespace, key)
        else:
            self._kv.put(namespace, key, value)

    def announced(self, namespace: str) -> Mapping[str, str]:
        """The values of a namespace by their keys."""
        return self._kv.namespace(namespace) or {}
