"""The parameters and results of administration. Times in ms since 1970, offsets in messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.model.message import MessageQueue
from pocketmq.model.subscription import SubscriptionData


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """One address of a cluster; id 0 is the master of its name."""

    cluster: str
    name: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What a queue holds: offsets [min, max); last_update_ms is 0 for an empty one."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int

    @property
    def count(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's progress in a queue; last_ms: store time of the last consumed message, 0 if gone.

    owner: client id of the member that owns the queue now; None if unknown. shared: no member owns it, since
    the group has members that pop.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_ms: int
    owner: str | None = None
    shared: bool = False

    @property
    def lag(self) -> int:
        """Return the messages that wait; 0 also for an offset behind the queue's end, where none does."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client; address is `ip:port` as the broker sees it, version an MQVersion ordinal.

    protocol: remoting or grpc; only PocketMQ's brokers report it.
    """

    client_id: str
    address: str
    language: str
    version: int
    protocol: str = "remoting"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            str(data.get("clientId") or ""),
            str(data.get("clientAddr") or ""),
            str(data.get("language") or "OTHER"),
            int(data.get("version") or 0),
            str(data.get("protocol") or "remoting"),
        )


@dataclass(frozen=True, slots=True)
class GroupConnection:
    """The connected consumers of a group, and the subscription that the broker keeps for the group."""

    members: tuple[Member, ...]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: Mapping[str, SubscriptionData]

    @property
    def is_shared(self) -> bool:
        """Return True if there are members that pop: they share each queue with the others."""
        return any(map(self.pops, self.members))

    def pops(self, member: Member) -> bool:
        return self.consume_type == "CONSUME_POP" or member.protocol == "grpc"


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """The state that a consumer reports; data: the whole answer, as ConsumerRunningInfo names it."""

    client_id: str
    properties: Mapping[str, str]
    subscriptions: Mapping[str, SubscriptionData]
    queues: Mapping[MessageQueue, Mapping[str, Any]]
    statuses: Mapping[str, Mapping[str, float]]
    stack: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """An offset that was reset, or would be: from old to new."""

    queue: MessageQueue
    old_offset: int
    new_offset: int


@dataclass(frozen=True, slots=True)
class ConsumeResultOfOne:
    """How a consumer handled a message that was handed to it directly."""

    result: str
    spent_ms: int
    remark: str | None
