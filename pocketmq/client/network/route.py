"""TopicRoute: where the queues of a topic are, according to the name server.

A route provides three things: the queues to send to (write permission and a master), the queues to
consume from (read permission), and the addresses of the brokers. Source: TopicRouteData,
MQClientInstance.topicRouteData2TopicPublishInfo, RocketMQ 4.9.7.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketmq.client.errors import TransientError
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import MASTER_ID
from pocketmq.model.tables import (
    QUEUE_COUNT_MAX,
    ROUTE_QUEUES_MAX,
    SENDS_ONCE,
    BrokerData,
    countable,
)
from pocketmq.remoting import fastjson
from pocketmq.remoting.errors import PocketMQError
from pocketmq.remoting.flags import Perm


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues of a topic on one broker; perm is a Perm. sends_once: it recognises repeated sends."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    sends_once: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as in routes."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "writeQueueNums": self.write_queue_nums,
        }


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The answer of GET_ROUTEINFO_BY_TOPIC, its lists in order of the broker's name."""

    queues: tuple[QueueData, ...] = ()
    brokers: tuple[BrokerData, ...] = ()
    order_conf: str | None = None

    @classmethod
    def parse(cls, body: bytes | bytearray | memoryview) -> "TopicRoute":
        """Parse the answer. Raises: FastjsonError if the body is not a route."""
        data = fastjson.loads(body)
        if not isinstance(data, Mapping):
            raise fastjson.FastjsonError("the answer to a route request is not an object")
        order_conf = data.get("orderTopicConf")
        try:
            return cls(
                tuple(
                    sorted(
                        (_queue_data(each) for each in countable(data.get("queueDatas"))),
                        key=lambda queue: queue.broker_name,
                    )
                ),
                tuple(
                    sorted(
                        (BrokerData.from_json(each) for each in data.get("brokerDatas") or ()),
                        key=lambda broker: broker.broker_name,
                    )
                ),
                order_conf if isinstance(order_conf, str) else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise fastjson.FastjsonError(f"a route cannot be read: {error!r}") from error

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to consume from: every queue of a readable broker."""
        return [
            MessageQueue(topic, each.broker_name, number)
            for each in self.queues
            if each.perm & Perm.READ
            for number in range(each.read_queue_nums)
        ]

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to send to: those of the order configuration, else of writable masters."""
        ordered, _ = _ordered(self.order_conf)
        if ordered:
            return [
                MessageQueue(topic, name, number)
                for name, count in ordered
                for number in range(count)
            ]
        masters = {each.broker_name for each in self.brokers if MASTER_ID in each.addresses}
        return [
            MessageQueue(topic, each.broker_name, number)
            for each in self.queues
            if each.perm & Perm.WRITE and each.broker_name in masters
            for number in range(each.write_queue_nums)
        ]

    @property
    def lacks_masters(self) -> bool:
        """Return True if a broker of it has slaves only: a failover may be under way."""
        return any(MASTER_ID not in each.addresses for each in self.brokers)

    @property
    def malformed_order(self) -> list[str]:
        """Return the entries of the order configuration that mean no queues."""
        return _ordered(self.order_conf)[1]

    def limited_to(self, queue_count: int) -> "TopicRoute":
        """Return this route with at most `queue_count` queues per broker: for a topic yet to be created."""
        return TopicRoute(
            tuple(
                QueueData(
                    each.broker_name,
                    min(each.read_queue_nums, queue_count),
                    min(each.write_queue_nums, queue_count),
                    each.perm,
                    each.sends_once,
                )
                for each in self.queues
            ),
            self.brokers,
            self.order_conf,
        )


def _ordered(order_conf: str | None) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the broker names of an order configuration, `a:4;b:4`, with their queues; and what is malformed.

    A malformed entry is skipped and the others hold (PocketMQ only: Java keeps the old route).
    """
    found, malformed = [], []
    left = ROUTE_QUEUES_MAX
    for part in filter(None, (order_conf or "").split(";")):
        name, _, text = part.partition(":")
        count = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
        if not name or not 0 <= count <= min(QUEUE_COUNT_MAX, left):
            malformed.append(part)
            continue
        left -= count
        found.append((name, count))
    return found, malformed


def _queue_data(data: Mapping[str, Any]) -> QueueData:
    return QueueData(
        str(data["brokerName"]),
        int(data.get("readQueueNums") or 0),
        int(data.get("writeQueueNums") or 0),
        int(data.get("perm") or 0),
        bool(int(data.get("topicSysFlag") or 0) & SENDS_ONCE),
    )


class BrokerUnknown(TransientError):
    """No address of the broker is known."""


class NoQueueToSendTo(PocketMQError):
    """The route has no writable queue."""


@dataclass(slots=True)
class TopicPublishInfo:
    """The queues to send to, round robin from a random start.

    Attributes: order_topic (the queues come from an order configuration), next_index, once (names of brokers
    that recognise repeated sends).
    """

    queues: list[MessageQueue]
    order_topic: bool = False
    next_index: int = 0
    write_queue_nums: dict[str, int] = field(default_factory=dict)
    once: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topic: str, route: TopicRoute, random_index: int) -> "TopicPublishInfo":
        return cls(
            route.publish_queues(topic),
            bool(_ordered(route.order_conf)[0]),
            random_index,
            {each.broker_name: each.write_queue_nums for each in route.queues},
            frozenset(each.broker_name for each in route.queues if each.sends_once),
        )

    @property
    def ok(self) -> bool:
        return bool(self.queues)

    def take(self) -> MessageQueue:
        """Return the next queue. Raises: NoQueueToSendTo."""
        if not self.queues:
            raise NoQueueToSendTo("no queue can be written to: no master, or no write permission")
        index = self.next_index
        self.next_index = index + 1 & 0x7FFF_FFFF
        return self.queues[index % len(self.queues)]

    def take_where(self, accept: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """Return the next queue that is accepted; None after one round without."""
        for _ in range(len(self.queues)):
            queue = self.take()
            if accept(queue):
                return queue
        return None


class BrokerAddresses:
    """broker name -> broker id -> address, of all known routes; owner: MQClientInstance."""

    def __init__(self) -> None:
        self._table: dict[str, dict[int, str]] = {}

    def learn(self, route: TopicRoute) -> None:
        for broker in route.brokers:
            self._table[broker.broker_name] = dict(broker.addresses)

    def forget_except(self, live: set[str]) -> list[str]:
        """Drop addresses that no route names any more (cleanOfflineBroker); return them."""
        gone: list[str] = []
        for name, by_id in list(self._table.items()):
            for number, address in list(by_id.items()):
                if address not in live:
                    del by_id[number]
                    gone.append(address)
            if not by_id:
                del self._table[name]
        return gone

    def master(self, broker_name: str) -> str | None:
        return self._table.get(broker_name, {}).get(MASTER_ID)

    def any_of(self, broker_name: str, broker_id: int) -> str | None:
        """Return the address of that id; if absent, of the next slave, else any."""
        by_id = self._table.get(broker_name)
        if not by_id:
            return None
        found = by_id.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = by_id.get(broker_id + 1)
        if found is None:
            found = next(iter(by_id.values()))
        return found

    def is_slave(self, broker_name: str, address: str) -> bool:
        return self.master(broker_name) != address

    def all(self) -> list[tuple[str, int, str]]:
        """Return (broker name, broker id, address) of every known broker."""
        return [
            (name, number, address)
            for name, by_id in self._table.items()
            for number, address in by_id.items()
        ]

    def name_of(self, address: str) -> str | None:
        """Return the broker's name for one of its addresses."""
        for name, by_id in self._table.items():
            if address in by_id.values():
                return name
        return None
