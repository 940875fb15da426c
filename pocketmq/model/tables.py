"""A topic, a group and a broker, as shared by both ends and the files.

Their JSON is that of topics.json, subscriptionGroup.json, registrations and the requests of administration.
Source: TopicConfig, SubscriptionGroupConfig, RocketMQ 4.9.7.
"""

import logging
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Self

from pocketmq.remoting.flags import Perm
from pocketmq.remoting.header import camel
from pocketmq.remoting.java_number import number

log = logging.getLogger(__name__)

READER_ATTRIBUTE, BATCH_READER = "group.reader", "batch"
"""Ours: a group's attribute, and its value for a group whose members come and go, such as nightly jobs."""
READ_WRITE = int(Perm.READ | Perm.WRITE)
QUEUE_COUNT_MAX = 65_536
"""Ours: a topic of more queues than this at one broker is a mistake, and each queue costs a file."""
ROUTE_QUEUES_MAX = 262_144
"""Queues of a topic at all brokers that a reader of its route lists: a tenth of a second's work."""


def perm_text(perm: int) -> str:
    """Format as `RWX` with a dash for each bit that is off, like PermName.perm2String.

    >>> perm_text(6), perm_text(4), perm_text(7)
    ('RW-', 'R--', 'RWX')
    """
    return (
        ("R" if perm & Perm.READ else "-")
        + ("W" if perm & Perm.WRITE else "-")
        + ("X" if perm & Perm.INHERIT else "-")
    )


@dataclass(slots=True)
class BrokerData:
    """The addresses of one broker name by broker id; 0 is the master. Source: BrokerData, RocketMQ 4.9.7."""

    broker_name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as in routes."""
        return {
            "brokerAddrs": dict(sorted(self.addresses.items())),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse it. Raises: KeyError, TypeError, ValueError."""
        addresses = data.get("brokerAddrs") or {}
        return cls(
            str(data["brokerName"]),
            str(data.get("cluster") or ""),
            {number(key): str(address) for key, address in addresses.items()},
        )


def countable(rows: Any) -> list[Any]:
    """Return the queueDatas of a route without those that have too many queues, which the log names.

    Ours: any client of a name server may register any number of queues for a topic, and every reader of the
    route would make as many.
    """
    found: list[Any] = []
    left = ROUTE_QUEUES_MAX
    for row in rows if isinstance(rows, list) else ():
        named = row if isinstance(row, Mapping) else {}
        count = max(_count(named.get(name)) for name in ("readQueueNums", "writeQueueNums"))
        if count > min(QUEUE_COUNT_MAX, left):
            log.warning("left out of a route: broker=%r queues=%d", named.get("brokerName"), count)
            continue
        left -= count
        found.append(row)
    return found


def _count(value: Any) -> int:
    """Return how many queues a reader would make; 0 for what it refuses."""
    try:
        return max(number(value), 0)
    except (OverflowError, TypeError, ValueError):
        return 0


def _number(value: Any, usual: int) -> int:
    return usual if value is None or value == "" else number(value)


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def _truth(value: Any, usual: bool) -> bool:
    """Return a truth value as RocketMQ reads it from a file that was written by hand: "false", 0.

    Raises: KeyError if it is a text that means neither.
    """
    if value is None or value == "":
        return usual
    return _TRUTHS[value.lower()] if isinstance(value, str) else value == 1


SENDS_ONCE = 1 << 16
"""Bit of a topic's sysFlag in routes: its broker recognises repeated sends (PocketMQ only; RocketMQ's clients
look at no bit of it, its name servers at the lowest two). No table of topics holds it.
"""

# How attributes begin that let a topic keep less than the log (store/queue/topic_retention.py).
RESERVE = "reserve."


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic of one broker; the defaults are RocketMQ's.

    perm: 4 read, 2 write, 1 inherit. attributes: RocketMQ 5.x's, kept as they come.
    """

    topic: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = READ_WRITE
    _: KW_ONLY
    order: bool = False
    sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object of topics.json and of the wire."""
        data: dict[str, Any] = {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.topic,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }
        if self.attributes:
            data["attributes"] = dict(self.attributes)
        return data

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse it. Raises: AttributeError, KeyError, TypeError, ValueError if it is not a topic."""
        attributes = data.get("attributes") or {}
        return cls(
            str(data["topicName"]),
            _number(data.get("readQueueNums"), 16),
            _number(data.get("writeQueueNums"), 16),
            _number(data.get("perm"), READ_WRITE),
            order=_truth(data.get("order"), False),
            sys_flag=_number(data.get("topicSysFlag"), 0),
            filter_type=str(data.get("topicFilterType") or "SINGLE_TAG"),
            attributes={str(name): str(value) for name, value in attributes.items()},
        )

    def queue_data(self, broker_name: str) -> dict[str, Any]:
        """Return QueueData of a route, as JSON."""
        return {
            "brokerName": broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @property
    def by_priority(self) -> bool:
        """Its messages lie in the queue of their priority, and pops take the highest first (5.5)."""
        return self.attributes.get("message.type", "").upper() == "PRIORITY"

    @property
    def is_lite(self) -> bool:
        """It has lite topics in it (5.5): see lite.md."""
        return self.attributes.get("message.type", "").upper() == "LITE"

    @property
    def readable(self) -> bool:
        return bool(self.perm & Perm.READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & Perm.WRITE)

    def __str__(self) -> str:
        return (
            f"TopicConfig [topicName={self.topic}, readQueueNums={self.read_queues}, "
            f"writeQueueNums={self.write_queues}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.filter_type}, topicSysFlag={self.sys_flag}, "
            f"order={str(self.order).lower()}]"
        )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A subscription group of one broker; the defaults are RocketMQ's.

    extra: fields that 5.x tools send, kept as they come.
    """

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def reads_batches(self) -> bool:
        """Return True if its members come and go: the attribute `group.reader` is `batch`. Ours."""
        attributes = self.extra.get("attributes")
        return isinstance(attributes, Mapping) and attributes.get(READER_ATTRIBUTE) == BATCH_READER

    def to_json(self) -> dict[str, Any]:
        """Return the object of subscriptionGroup.json and of the wire."""
        named = {wire: getattr(self, name) for name, wire in _GROUP_NAMES.items()}
        return {**self.extra, **dict(sorted(named.items()))}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parse it. Raises: AttributeError, KeyError, TypeError, ValueError if it is not a group."""
        named = {name: data[wire] for name, wire in _GROUP_NAMES.items() if wire in data}
        values: dict[str, Any] = {
            name: _truth(value, True) if name.endswith("enable") else number(value)
            for name, value in named.items()
            if name != "group" and value is not None and value != ""
        }
        known = set(_GROUP_NAMES.values())
        extra = {n: v for n, v in data.items() if n not in known and isinstance(n, str)}
        return cls(str(data["groupName"]), **values, extra=extra)


def reader_attribute(*, batch: bool) -> dict[str, str]:
    """Return the change of a group's attributes that says whether it reads in batches, or no longer."""
    return {f"+{READER_ATTRIBUTE}": BATCH_READER} if batch else {f"-{READER_ATTRIBUTE}": ""}


_GROUP_NAMES = {
    each.name: {"group": "groupName", "retry_queues": "retryQueueNums"}.get(
        each.name, camel(each.name)
    )
    for each in fields(GroupConfig)
    if each.name != "extra"
}
