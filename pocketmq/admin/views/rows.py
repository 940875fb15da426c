"""Rows for programs: what `--json` and the console's API show of the same thing has the same keys.

A row's fields are its keys, in camelCase (`model.as_json`). Times are ms since 1970, None if unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.admin.types import Member, OffsetReset, QueueProgress, QueueStatus
from pocketmq.model.as_json import as_object
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.model.subscription import SubscriptionData
from pocketmq.model.tables import GroupConfig, TopicConfig
from pocketmq.remoting.codes import version_name


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; broker: its name."""

    topic: str
    broker: str
    queue_id: int

    @classmethod
    def of(cls, queue: MessageQueue) -> Self:
        return cls(*queue)


@dataclass(frozen=True, slots=True)
class QueueStatusRow:
    """What a queue of a topic holds: offsets [min, max); last: when its newest message was stored."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_timestamp: int | None

    @classmethod
    def of(cls, row: QueueStatus) -> Self:
        _, broker, queue_id = row.queue
        last_ms = row.last_update_ms or None
        return cls(broker, queue_id, row.min_offset, row.max_offset, row.count, last_ms)


@dataclass(frozen=True, slots=True)
class QueueProgressRow:
    """A group's progress in a queue; last: when the last message that it consumed was stored."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_timestamp: int | None
    owner: str | None
    shared: bool

    @classmethod
    def of(cls, row: QueueProgress) -> Self:
        offsets = (row.broker_offset, row.consumer_offset, row.lag)
        return cls(*row.queue, *offsets, row.last_ms or None, row.owner, row.shared)


def reset_row(step: OffsetReset) -> dict[str, Any]:
    """Return an offset that was reset: from, a word of Python's, to."""
    row = as_object(QueueRow.of(step.queue))
    return {**row, "from": step.old_offset, "to": step.new_offset}


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A connected client; version: RocketMQ's that it reports."""

    client_id: str
    address: str
    language: str
    version: str

    @classmethod
    def of(cls, member: Member) -> Self:
        version = version_name(member.version)
        return cls(member.client_id, member.address, member.language, version)


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription; version: when it was made, ms since 1970 as the client says."""

    topic: str
    expression: str
    expression_type: str
    tags: list[str]
    version: int

    @classmethod
    def of(cls, subscription: SubscriptionData) -> Self:
        return cls(
            subscription.topic,
            subscription.sub_string,
            subscription.expression_type,
            sorted(subscription.tags_set),
            subscription.sub_version,
        )

    @classmethod
    def of_all(cls, subscriptions: Iterable[SubscriptionData]) -> list[Self]:
        """Return them by topic; a group's retry topic, which every member subscribes, comes last."""
        rows = map(cls.of, subscriptions)
        return sorted(rows, key=lambda each: (each.topic.startswith(RETRY_PREFIX), each.topic))


@dataclass(frozen=True, slots=True)
class TopicConfigRow:
    """A topic's configuration at a broker."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    filter_type: str
    attributes: dict[str, str]

    @classmethod
    def of(cls, broker: str, config: TopicConfig) -> Self:
        return cls(
            broker,
            config.read_queues,
            config.write_queues,
            config.perm,
            config.order,
            config.filter_type,
            dict(config.attributes),
        )


@dataclass(frozen=True, slots=True)
class GroupConfigRow:
    """A group's configuration at a broker."""

    broker: str
    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queues: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool

    @classmethod
    def of(cls, broker: str, config: GroupConfig) -> Self:
        return cls(broker, *(getattr(config, name) for name in _GROUP_FIELDS))


_GROUP_FIELDS = tuple(name for name in GroupConfigRow.__dataclass_fields__ if name != "broker")
