"""Consumer progress for administrators: view and copy.

Source: AdminBrokerProcessor, RocketMQ 4.9.7.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.model.pop_receipt import normal_topic
from pocketmq.model.tables import TopicConfig

log = logging.getLogger(__name__)

_LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF


class QueueOffsets(NamedTuple):
    """One queue. end, consumed, pulled: offsets; no stored offset counts as 0. last_ms: store time of the
    last consumed message, 0 without one."""

    queue_id: int
    end: int
    consumed: int
    pulled: int
    last_ms: int


@dataclass(slots=True)
class TopicProgress:
    """One topic of a group. tps: messages a second that it consumes."""

    topic: str
    tps: float
    queues: list[QueueOffsets]

    @property
    def lag(self) -> int:
        return sum(each.end - each.consumed for each in self.queues)

    @property
    def in_flight(self) -> int:
        """Return the number of messages pulled but not committed."""
        return sum(each.pulled - each.consumed for each in self.queues)


class QueueSpan(NamedTuple):
    """Store times of a queue's first, last consumed and last message in ms, -1 without one; and how
    long the next message has waited, ms.
    """

    queue_id: int
    first_ms: int
    consumed_ms: int
    last_ms: int
    delay_ms: int


class ProgressActs:
    """View the progress of groups; copy it."""

    def __init__(
        self, node: Node, tables: Tables, consumers: ConsumerManager, messages: Messages
    ) -> None:
        self._now_ms = node.clock.now_ms
        self._offset_set = node.events.offset_set
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = consumers
        self._store = messages.store
        self._stats = messages.stats
        self._pulled_to = messages.deliveries.pulled_to

    def of_group(self, group: str, topics: Iterable[str] | None = None) -> Iterator[TopicProgress]:
        """Yield the group's progress in these topics, or in all topics it has offsets of."""
        wanted = sorted(self._offsets.topics_of(group)) if topics is None else topics
        for topic in self._consumed(group, wanted):
            yield self._progress(group, topic.topic, topic.read_queues)

    def of_all(self, *, ordered: bool) -> Iterator[tuple[str, list[TopicProgress]]]:
        """Yield the progress of each group; ordered: in ordered topics only."""
        topics_of: dict[str, list[str]] = {}
        for key in sorted(self._offsets.offsets):
            topic, _, group = key.partition("@")
            topics_of.setdefault(group, []).append(topic)
        for group in self._groups.groups:
            yield (
                group,
                [
                    self._progress(group, topic.topic, topic.write_queues)
                    for topic in self._consumed(group, topics_of.get(group, ()))
                    if topic.order or not ordered
                ],
            )

    def _consumed(self, group: str, topics: Iterable[str]) -> Iterator[TopicConfig]:
        """Yield those topics that exist and, while the group is online, that it subscribes.

        Groups that pop also read the topic's pop retry topic, which no subscription names.
        """
        online = self._consumers.groups.get(group)
        for topic in topics:
            config = self._topics.get(topic)
            if config is None:
                log.warning("topic does not exist topic=%s group=%s", topic, group)
            elif (
                online is not None
                and online.subscriptions
                and topic not in online.subscriptions
                and normal_topic(topic, group) not in online.subscriptions
            ):
                log.warning("group does not subscribe to the topic topic=%s group=%s", topic, group)
            else:
                yield config

    def _progress(self, group: str, topic: str, count: int) -> TopicProgress:
        queues: list[QueueOffsets] = []
        for queue_id in range(count):
            consumed = max(0, self._offsets.query(group, topic, queue_id))
            last_ms = self._store.store_time_at(topic, queue_id, consumed - 1) if consumed else 0
            end = self._store.max_offset(topic, queue_id)
            pulled = max(consumed, self._pulled_to(group, topic, queue_id))
            queues.append(QueueOffsets(queue_id, end, consumed, pulled, max(0, last_ms)))
        return TopicProgress(topic, self._stats.group_get_tps(group, topic), queues)

    def spans(self, group: str, topic: str) -> list[QueueSpan] | None:
        """Return the spans by queue id; None if the topic does not exist."""
        config = self._topics.get(topic)
        if config is None:
            return None
        return [self._span(group, topic, queue_id) for queue_id in range(config.write_queues)]

    def _span(self, group: str, topic: str, queue_id: int) -> QueueSpan:
        store = self._store
        first_ms = store.earliest_time(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        consumed_ms = first_ms
        if consumed > 0:
            consumed_ms = store.store_time_at(topic, queue_id, consumed - 1)
        delay_ms = 0
        if consumed < end:
            # Ours: a group without an offset waits for the oldest message, and one that has fallen behind
            # it too; RocketMQ answers the time since 1970 for both.
            waiting = max(consumed, store.min_offset(topic, queue_id))
            waiting_ms = store.store_time_at(topic, queue_id, waiting)
            delay_ms = max(0, self._now_ms() - waiting_ms) if waiting_ms > 0 else 0
        last_ms = store.store_time_at(topic, queue_id, end - 1)
        return QueueSpan(queue_id, first_ms, consumed_ms, last_ms, delay_ms)

    def corrections(self, group: str, topic: str, skipped: str | None) -> dict[int, int]:
        """Return the lowest offset of any group by queue; Long.MAX_VALUE where `group` is behind it.

        skipped: comma-separated groups to leave out.
        """
        found = self._offsets.min_in_all_groups(topic, self._store.min_offset, skipped)
        for queue_id, offset in self._offsets.of_topic(group, topic).items():
            if queue_id in found and found[queue_id] > offset:
                found[queue_id] = _LONG_MAX
        return found

    def copy(
        self, source: str, target: str, topics: Iterable[str] | None, *, offline: bool, by: str
    ) -> list[str]:
        """Copy `source`'s offsets in these topics, or in all, to `target`. Returns: the topics.

        offline: copy also where `source` is online and does not subscribe the topic; by: as Node.who.
        """
        wanted = sorted(self._offsets.topics_of(source)) if topics is None else topics
        if offline:
            copied = [topic for topic in wanted if self._topics.get(topic) is not None]
        else:
            copied = [each.topic for each in self._consumed(source, wanted)]
        text = f"by {by} with a copy of the offsets of group {source}"
        for topic in copied:
            for queue_id, offset in self._offsets.of_topic(source, topic).items():
                self._offset_set(target, topic, queue_id, offset, text)
            self._offsets.clone(source, target, topic)
        return copied
