"""Demand: what a group has left to do, by which its members are scaled. Ours."""

from dataclasses import dataclass

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.pop.service import PopService
from pocketmq.model.names import dlq_topic, retry_topic
from pocketmq.model.pop_receipt import Receipted, normal_topic


@dataclass(slots=True)
class Demand:
    """waiting: messages that no member has; in_flight: popped, and not acknowledged;
    oldest_ms: how long the oldest waiting message has been stored, 0 without one.
    """

    waiting: int = 0
    in_flight: int = 0
    oldest_ms: int = 0

    @property
    def count(self) -> int:
        """Return the number of messages that a member is needed for."""
        return self.waiting + self.in_flight


class DemandActs:
    """View what groups have left to do."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        consumers: ConsumerManager,
        messages: Messages,
        pop: PopService,
    ) -> None:
        self._now_ms = node.clock.now_ms
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = consumers
        self._store = messages.store
        self._receipts = pop.receipts

    def of(self, group: str, topic: str | None = None) -> Demand:
        """Return the demand of a group for a topic, or for all that it reads; retries of both are included.

        Of a named topic's queues where the group has no offset, everything that is stored counts. Queues that
        cannot be read any more do not.
        Raises: LookupError if the topic, or without one the group, does not exist.
        """
        if topic is not None and self._topics.get(topic) is None:
            raise LookupError(f"topic {topic} does not exist")
        if topic is None and self._groups.get(group) is None:
            raise LookupError(f"group {group} does not exist")
        found, oldest = Demand(), 0
        begins: dict[tuple[str, int], int] = {}
        for name in self._names(group, topic):
            config = self._topics.get(name)
            offsets = self._offsets.of_topic(group, name)
            for queue_id in range(0 if config is None else config.read_queues):
                at = offsets.get(queue_id, 0 if name == topic else -1)
                if at < 0:
                    continue
                begins[name, queue_id] = at
                left = self._store.backlog(name, queue_id, at)
                found.waiting += left.end - left.at
                if left.at < left.end and left.stored_ms > 0:
                    oldest = min(oldest or left.stored_ms, left.stored_ms)
        if oldest:
            found.oldest_ms = max(0, self._now_ms() - oldest)
        for name, queue_id, offset, state in self._receipts(group):
            is_its = topic is None or normal_topic(name, group) == topic
            if is_its and state is Receipted.OUT:
                found.in_flight += 1
                # Pops in order leave the offset in front of what they give.
                begin = begins.get((name, queue_id))
                found.waiting -= begin is not None and offset >= begin
        return found

    def _names(self, group: str, topic: str | None) -> set[str]:
        """Return the topics that count. The group's retry topic has messages of all that it reads."""
        online = self._consumers.get(group)
        own = self._offsets.topics_of(group)
        own |= set() if online is None else online.subscriptions.keys()
        own.discard(dlq_topic(group))
        if topic is None:
            return own
        retries = retry_topic(group)
        return {topic} | {
            name for name in own if name == retries or normal_topic(name, group) == topic
        }
