"""RouteInfo: which broker serves which queues of which topic, and which brokers are alive.

    clusters   cluster        -> names of brokers
    brokers    broker name    -> BrokerData: cluster, {broker id: address}; id 0 is the master
    topics     topic          -> broker name -> TopicConfig
    live       broker address -> LiveInfo: last sign of life, DataVersion, connection, HA address

1. Queue data is accepted from a master only, and only if the DataVersion of its topic table differs from the
   last one of that address, or the broker or its id is new. Under an unchanged version only topics that the
   address has never sent are accepted: brokers first send a changed topic alone, and the whole table under
   the same version later (RocketMQ then loses the rest; this is ours). A broker of this process says which
   topics have changed: these are accepted, for the version may be that of a later change.
2. A topic that a later table lacks stays; delete_topic removes it, or the end of its last broker.
3. A broker is alive while it registers (or sends heartbeats) within its timeout, and while the connection
   over which it registered is open: when that closes, it is removed at once.
4. One address has one id: registering it under another id moves it.
5. A broker of this process cannot be impersonated: requests over a connection can neither take its place or
   address nor remove it. Ours: in RocketMQ, and for brokers of other processes here, the last request wins.
6. Answers are ordered by name, so a client that compares two of them sees real changes only.
7. A route has at most QUEUES_MAX queues: the brokers with most of them are left out of its queues. Ours:
   any client of a name server may register any number, and all clients would make as many queues.
8. While a master of a larger epoch is alive (stateVersion of its DataVersion, set under a controller), a
   broker at another address cannot take its id: an old master that returns is not in the route.
9. All registrations together have a bound (quota.py). A broker that is known stays alive above it.
Owner: the name server's event loop. No I/O, no task: time comes from the Clock, `expire` is called.
Source: RouteInfoManager, RocketMQ 4.9.7; heartbeat timeouts and member groups: 5.3.3.
"""

import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from pocketmq.model.data_version import DataVersion
from pocketmq.model.names import MASTER_ID
from pocketmq.model.tables import BrokerData, TopicConfig
from pocketmq.namesrv.quota import NAME_SIZE_MAX, Quota, SentTopics
from pocketmq.namesrv.registration_body import drained
from pocketmq.namesrv.write_permissions import WritePermissions
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

BROKER_TIMEOUT_MS = 120_000
# Between two steps of a registration: a millisecond or less.
_TOPICS_AT_ONCE = 500
_NAMED_MAX = 100
QUEUES_MAX = 1 << 20
"""Of a topic, at all its brokers: far beyond any in use, and some 100 bytes each for a client."""


@dataclass(slots=True)
class LiveInfo:
    """What is known of one address; `last_ms` is monotonic, `sent` are all topics it has ever sent."""

    last_ms: int
    data_version: DataVersion
    connection: Hashable | None
    ha_address: str
    timeout_ms: int
    sent: SentTopics
    is_let_go: bool = False


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A REGISTER_BROKER request.

    topics: queue data by topic; None when the broker sent no topic table.
    are_changes: the topics are those that have just changed, so all are taken, under whatever version.
    timeout_ms: how long a sign of life counts (5.x brokers choose it).
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] | None = None
    are_changes: bool = False
    timeout_ms: int = BROKER_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Registered:
    """What a slave learns from its registration; a master gets two empty texts."""

    master_address: str = ""
    ha_address: str = ""


class RegistrationRefused(PocketMQError):
    """The request speaks for a broker that runs in the name server's own process (invariant 5)."""

    def __init__(self, broker_name: str, address: str) -> None:
        super().__init__(
            f"refused: broker {broker_name!r} at {address} runs in the name server's own process, and no "
            "other may take its place; give the other broker its own brokerName and listenPort"
        )


class RouteInfo:
    """The tables of one name server."""

    def __init__(
        self, clock: Clock, when_new: Callable[[list[str]], None] = lambda topics: None
    ) -> None:
        """when_new: called with the topics that a broker has registered for the first time."""
        self._clock = clock
        self._when_new = when_new
        self._clusters: dict[str, set[str]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self._topics: dict[str, dict[str, TopicConfig]] = {}
        self._live: dict[str, LiveInfo] = {}
        self.quota = Quota(clock)
        self._permissions = WritePermissions()

    # ------------------------------------------------------------ brokers come

    def register(self, registration: BrokerRegistration, connection: Hashable | None) -> Registered:
        """Accept a broker's registration at once. Args, raises: as `registering`."""
        return drained(self.registering(registration, connection))

    def registering(
        self, registration: BrokerRegistration, connection: Hashable | None
    ) -> Generator[None, None, Registered]:
        """Accept a broker's registration and its topics (invariants 1, 4), in steps.

        connection: the one it was sent over; None for a broker in this process, which leaves by unregister.
        If that closes between two steps, the rest is not taken, and the broker is removed.
        Raises: RegistrationRefused (invariant 5), NoRoom (invariant 9).
        """
        name, broker_id, address = (
            registration.broker_name,
            registration.broker_id,
            registration.address,
        )
        if connection is not None:
            self._refuse_own(name, broker_id, address)
            self._check_room(registration)
        if self._is_fenced(registration):
            self._remove_addresses([address], "another master of its name has a larger epoch")
            return Registered()
        self._clusters.setdefault(registration.cluster, set()).add(name)
        broker = self.brokers.get(name)
        if broker is None:
            broker = self.brokers[name] = BrokerData(name, registration.cluster)
        for other_id, other in list(broker.addresses.items()):
            if other == address and other_id != broker_id:
                del broker.addresses[other_id]
        known_id = broker_id in broker.addresses
        if broker.addresses.get(broker_id) != address:
            log.info(
                "broker registered cluster=%s name=%s id=%d address=%s before=%s",
                registration.cluster,
                name,
                broker_id,
                address,
                broker.addresses.get(broker_id),
            )
        broker.addresses[broker_id] = address
        before = self._live.get(address)
        changed = before is None or before.data_version != registration.data_version
        if before is None and broker_id == MASTER_ID:
            # This process has just started: its permission replaces one that was set for an earlier process.
            self._permissions.forget(name)
        sent = SentTopics() if before is None else before.sent
        self._live[address] = LiveInfo(
            self._clock.monotonic_ms(),
            registration.data_version,
            connection,
            registration.ha_address,
            registration.timeout_ms,
            sent,
        )
        if registration.topics is not None and broker_id == MASTER_ID:
            changed = changed or not known_id or registration.are_changes
            known: Set[str] = frozenset() if changed else sent.topics
            yield from self._take_topics(name, address, registration.topics, known)
        if broker_id == MASTER_ID:
            return Registered()
        master = broker.addresses.get(MASTER_ID, "")
        live = self._live.get(master)
        return Registered() if live is None else Registered(master, live.ha_address)

    def _is_fenced(self, registration: BrokerRegistration) -> bool:
        """Apply invariant 8."""
        broker = self.brokers.get(registration.broker_name)
        holder = None if broker is None else broker.addresses.get(registration.broker_id)
        live = None if holder in (None, registration.address) else self._live.get(holder)
        epoch = registration.data_version.state_version
        return live is not None and live.data_version.state_version > epoch

    def _refuse_own(self, name: str, broker_id: int, address: str) -> None:
        """Check invariant 5. Raises: RegistrationRefused if a broker of this process has place or address."""
        broker = self.brokers.get(name)
        holder = "" if broker is None else broker.addresses.get(broker_id, "")
        for each in (holder, address):
            live = self._live.get(each)
            if live is not None and live.connection is None and not live.is_let_go:
                raise RegistrationRefused(name, each)

    def _check_room(self, registration: BrokerRegistration) -> None:
        """Check what a registration adds besides topics. Raises: NoRoom (invariant 9)."""
        cluster, name, address = (
            registration.cluster,
            registration.broker_name,
            registration.address,
        )
        if max(map(len, (cluster, name, address, registration.ha_address))) > NAME_SIZE_MAX:
            raise self.quota.refused(f"names and addresses have at most {NAME_SIZE_MAX} characters")
        for table, key in (
            (self._clusters, cluster),
            (self.brokers, name),
            (self._live, address),
        ):
            if key not in table and not self.quota.for_another(len(table)):
                raise self.quota.refused(
                    f"there are {len(table)} brokers, addresses or clusters already, which is the limit"
                )

    def _take_topics(
        self, broker_name: str, address: str, topics: Mapping[str, TopicConfig], known: Set[str]
    ) -> Generator[None, None, None]:
        """Take the topics that are not among `known`, and note all as sent. Raises: QuotaExceeded."""
        live = self._live[address]
        new: list[str] = []
        refused = 0
        for place, (topic, queues) in enumerate(topics.items(), 1):
            if topic not in known:
                refused += not self._take_topic(broker_name, topic, queues, live, new)
            if place % _TOPICS_AT_ONCE == 0:
                yield
                now = self._live.get(address)
                if now is None or now.sent is not live.sent:
                    # It was removed meanwhile: nothing would ever remove what is taken now.
                    return
        if new:
            log.info(
                "topics registered broker=%s count=%d topics=%s",
                broker_name,
                len(new),
                ",".join(new[:_NAMED_MAX]),
            )
            self._when_new(new)
        if refused:
            raise self.quota.refused(
                f"{refused} topics of broker {broker_name!r} do not fit beside those that are registered"
            )

    def _take_topic(
        self, broker_name: str, topic: str, queues: TopicConfig, live: LiveInfo, new: list[str]
    ) -> bool:
        """Take one topic, and add it to `new` if it is; False if there is no room."""
        old = self._topics.get(topic, {}).get(broker_name)
        own = live.connection is None
        if not self.quota.take_sent(topic, live.sent, own=own):
            return False
        if old is None:
            if not self.quota.take_queues(topic, own=own):
                return False
            new.append(topic)
        if self._permissions.holds(broker_name, topic, queues):
            return True
        if old != queues and _counted(queues) > QUEUES_MAX:
            log.warning(
                "left out of routes, since no client can hold so many queues broker=%r topic=%r queues=%d",
                broker_name,
                topic,
                _counted(queues),
            )
        elif old not in (None, queues):
            log.info("topic changed topic=%s broker=%s new=%s", topic, broker_name, queues)
        self._topics.setdefault(topic, {})[broker_name] = queues
        return True

    def let_go(self, address: str) -> None:
        """Treat a broker of this process like any other, so that its place may be taken."""
        live = self._live.get(address)
        if live is not None:
            live.is_let_go = True

    def register_topic(self, topic: str, queues: Mapping[str, TopicConfig]) -> None:
        """Add a topic that no broker has registered; a known one stays unchanged (217, 5.x)."""
        if topic not in self._topics:
            found = {
                name: data
                for name, data in queues.items()
                if name in self.brokers and self.quota.take_queues(topic, own=False)
            }
            if found:
                self._topics[topic] = found
                self._when_new([topic])

    def data_version(self, address: str) -> DataVersion | None:
        """Return the DataVersion that the broker at `address` sent last."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def keep_alive(self, address: str, timeout_ms: int | None = None) -> bool:
        """Note a sign of life without a topic table; False if the address is not registered."""
        live = self._live.get(address)
        if live is None:
            return False
        live.last_ms = self._clock.monotonic_ms()
        if timeout_ms is not None and live.connection is not None:
            live.timeout_ms = timeout_ms
        return True

    # ------------------------------------------------------------ brokers go

    def unregister(
        self, broker_name: str, broker_id: int, address: str, connection: Hashable | None
    ) -> None:
        """Remove a broker. A late request of a process that has a successor changes nothing.

        connection: as in `register`. Raises: RegistrationRefused (invariant 5).
        """
        if connection is not None:
            self._refuse_own(broker_name, broker_id, address)
        broker = self.brokers.get(broker_name)
        if broker is not None and broker.addresses.get(broker_id) == address:
            self._remove([(broker, broker_id)], "unregistered")
        # A successor under another name may have the address, and must still be able to expire.
        if not any(address in each.addresses.values() for each in self.brokers.values()):
            self._forget(address)

    def connection_closed(self, connection: Hashable) -> list[str]:
        """Remove the brokers that registered over `connection`; return their addresses (invariant 3)."""
        gone = [address for address, live in self._live.items() if live.connection is connection]
        self._remove_addresses(gone, "its connection was closed")
        return gone

    def expire(self) -> list[Hashable]:
        """Remove brokers without a sign of life in their time; return the connections to close."""
        now = self._clock.monotonic_ms()
        gone = [a for a, live in self._live.items() if now - live.last_ms > live.timeout_ms]
        connections = [self._live[address].connection for address in gone]
        self._remove_addresses(gone, "it did not register in time")
        return [connection for connection in connections if connection is not None]

    def _remove_addresses(self, addresses: Sequence[str], why: str) -> None:
        gone = set(addresses)
        for address in gone:
            self._forget(address)
        places = [
            (broker, broker_id)
            for broker in self.brokers.values()
            for broker_id, known in broker.addresses.items()
            if known in gone
        ]
        if places:
            self._remove(places, why)

    def _forget(self, address: str) -> None:
        live = self._live.pop(address, None)
        if live is not None:
            self.quota.free_sent(live.sent)

    def _remove(self, places: Iterable[tuple[BrokerData, int]], why: str) -> None:
        """Remove addresses of brokers by id, and what has none left: all with one look at the topics."""
        empty: set[str] = set()
        for broker, broker_id in places:
            name = broker.broker_name
            address = broker.addresses.pop(broker_id)
            log.info("broker removed name=%s id=%d address=%s: %s", name, broker_id, address, why)
            if not broker.addresses:
                del self.brokers[name]
                empty.add(name)
        if not empty:
            return
        for cluster, names in list(self._clusters.items()):
            names -= empty
            if not names:
                del self._clusters[cluster]
        for topic, table in list(self._topics.items()):
            for name in table.keys() & empty:
                self._drop(topic, name)

    def _drop(self, topic: str, broker_name: str) -> None:
        """Remove a broker's queues of a topic, and a topic without any."""
        table = self._topics[topic]
        if table.pop(broker_name, None) is not None:
            self._permissions.forget(broker_name, (topic,))
            self.quota.free_queues(topic)
        if not table:
            del self._topics[topic]

    # ------------------------------------------------------------ topics

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, from all brokers or from those of one cluster."""
        table = self._topics.get(topic)
        if table is None:
            return
        names = self._clusters.get(cluster, set()) if cluster else table.keys()
        for name in table.keys() & names:
            self._drop(topic, name)

    def set_writable(self, broker_name: str, writable: bool) -> int:
        """Remove or add the write permission of all queues of a broker; return the number of topics.

        Of each topic it lasts until the broker registers that topic changed, or a new master of the name
        registers (write_permissions.py).
        """
        count = 0
        for topic, table in self._topics.items():
            queues = table.get(broker_name)
            if queues is not None:
                table[broker_name] = self._permissions.change(broker_name, topic, queues, writable)
                count += 1
        return count

    # ------------------------------------------------------------ answers

    def registered_over(self, address: str) -> Hashable | None:
        """Return the connection of a broker; None for one of this process. Raises: KeyError."""
        return self._live[address].connection

    def route(self, topic: str) -> dict[str, Any] | None:
        """Return TopicRouteData of `topic` as JSON, or None if no broker serves it."""
        table = self._topics.get(topic)
        if not table:
            return None
        names = [name for name in sorted(table) if name in self.brokers]
        if not names:
            return None
        return {
            "brokerDatas": [self.brokers[name].to_json() for name in names],
            "filterServerTable": {},
            "queueDatas": [table[name].queue_data(name) for name in _holdable(table, names)],
        }

    def cluster_info(self) -> dict[str, Any]:
        """Return ClusterInfo as JSON."""
        return {
            "brokerAddrTable": {
                name: self.brokers[name].to_json() for name in sorted(self.brokers)
            },
            "clusterAddrTable": {
                cluster: sorted(self._clusters[cluster]) for cluster in sorted(self._clusters)
            },
        }

    def member_group(self, cluster: str, broker_name: str) -> dict[str, Any] | None:
        """Return BrokerMemberGroup as JSON: all addresses of one broker name (901, 5.x)."""
        broker = self.brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return None
        return {
            "brokerAddrs": dict(sorted(broker.addresses.items())),
            "brokerName": broker_name,
            "cluster": cluster,
        }

    def topics(self, wanted: Callable[[TopicConfig], bool] | None = None) -> list[str]:
        """Return all topics, or those whose first queue data is `wanted`."""
        return [
            topic
            for topic, table in sorted(self._topics.items())
            if wanted is None or wanted(next(iter(table.values())))
        ]

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that have a broker in `cluster`."""
        names = self._clusters.get(cluster, set())
        return [t for t, table in sorted(self._topics.items()) if names & table.keys()]

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics named after clusters and brokers, and the address of one broker."""
        found: list[str] = []
        for cluster in sorted(self._clusters):
            found += [cluster, *sorted(self._clusters[cluster])]
        for name in sorted(self.brokers):
            addresses = self.brokers[name].addresses
            return found, addresses[min(addresses)]
        return found, None


def _counted(queues: TopicConfig) -> int:
    """Return how many queues a client makes of them; of a negative number, none."""
    return max(queues.read_queues, queues.write_queues, 0)


def _holdable(table: Mapping[str, TopicConfig], names: Sequence[str]) -> Sequence[str]:
    """Return the brokers whose queues fit into a route, in the order of `names` (invariant 7)."""
    left = QUEUES_MAX - sum(_counted(table[name]) for name in names)
    if left >= 0:
        return names
    kept = set(names)
    for name in sorted(names, key=lambda each: _counted(table[each]), reverse=True):
        if left >= 0:
            break
        kept.remove(name)
        left += _counted(table[name])
    return [name for name in names if name in kept]
