"""TopicConfigManager: the topics of this broker, config/topics.json. Source: TopicConfigManager, 4.9.7.

1. A change is on disk before it is answered, and then registered at every name server at once
   (topics_changed).
2. A producer's first send creates a topic from its `defaultTopic` if that one has the inherit bit: queues
   = min(the producer's number, the default topic's write queues), permission without that bit.
3. The default topic TBW102 exists only with autoCreateTopicEnable.
4. Requests that wait for a new or changed topic to be stored also wait until name servers of other processes
   know it, but for no more than a second: a client asks for a route as soon as its request is answered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.events import Events
from pocketmq.broker.tables.stored_table import StoredTable, resolve
from pocketmq.model.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    OFFSET_MOVED_EVENT,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TRANS_CHECK_MAX_TIME_TOPIC,
    is_system_topic,
)
from pocketmq.model.tables import READ_WRITE, RESERVE, TopicConfig
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm
from pocketmq.store import ConfigFile, MessageStore

if TYPE_CHECKING:
    from pocketmq.store.queue.topic_retention import Reserved

log = logging.getLogger(__name__)

_SCHEDULE_QUEUES = 18
# How long answers wait for name servers at most (invariant 4).
_TOLD_S = 1.0


class TopicConfigManager(StoredTable[TopicConfig]):
    """Owner of the topic table."""

    table, key, row_class = "topicConfigTable", "topic", TopicConfig
    key_name = "topicName"

    def __init__(
        self,
        file: ConfigFile,
        config: BrokerConfig,
        clock: Clock,
        events: Events | None = None,
    ) -> None:
        super().__init__(file, clock.now_ms())
        self._config = config
        self._clock = clock
        self.topics = self.rows
        self._events = events or Events()
        # Waiters whose topics are stored but not yet announced (invariant 4).
        self._untold: list[asyncio.Future[None]] = []
        self._holds = False
        self.system_topics = set(SYSTEM_TOPICS)
        for topic in self._built_in():
            self.topics[topic.topic] = topic
            self.system_topics.add(topic.topic)

    def _built_in(self) -> Iterable[TopicConfig]:
        config = self._config
        inherited = int(Perm.INHERIT)
        yield TopicConfig(SELF_TEST_TOPIC, 1, 1)
        if config.auto_create_topic_enable:
            count = config.default_topic_queue_nums
            yield TopicConfig(AUTO_CREATE_TOPIC, count, count, READ_WRITE | inherited)
        yield TopicConfig(BENCHMARK_TOPIC, 1024, 1024)
        cluster = READ_WRITE if config.cluster_topic_enable else 0
        yield TopicConfig(config.broker_cluster_name, perm=inherited | cluster)
        broker = READ_WRITE if config.broker_topic_enable else 0
        yield TopicConfig(config.broker_name, 1, 1, inherited | broker)
        yield TopicConfig(OFFSET_MOVED_EVENT, 1, 1)
        yield TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            yield TopicConfig(config.msg_trace_topic_name, 1, 1)
        yield TopicConfig(config.broker_cluster_name + REPLY_SUFFIX, 1, 1)

    def _make_template(self) -> None:
        """Create the topic that automatic topics are copied from, if the setting was off until now."""
        template = self.topics.get(AUTO_CREATE_TOPIC)
        if template is None or not template.perm & Perm.INHERIT:
            count = self._config.default_topic_queue_nums
            perm = READ_WRITE | int(Perm.INHERIT)
            self.topics[AUTO_CREATE_TOPIC] = TopicConfig(AUTO_CREATE_TOPIC, count, count, perm)
            self.system_topics.add(AUTO_CREATE_TOPIC)

    # ------------------------------------------------------------ asking

    def get(self, topic: str) -> TopicConfig | None:
        """Return the topic's configuration, or None."""
        return self.topics.get(topic)

    def is_system(self, topic: str) -> bool:
        """Return True if the name is a system topic's: built in, or prefixed `rmq_sys_`."""
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    @property
    def is_full(self) -> bool:
        """Return True if sends create no more topics (autoCreateTopicMax)."""
        return len(self.topics) >= self._config.auto_create_topic_max

    def is_order(self, topic: str) -> bool:
        found = self.topics.get(topic)
        return found is not None and found.order

    def lite(self) -> Iterator[TopicConfig]:
        """Yield the topics that lite topics are in."""
        return (each for each in list(self.topics.values()) if each.is_lite)

    def reserved(self) -> "dict[str, Reserved]":
        """Return what topics keep that keep less than the log; a bad value in the file is logged."""
        found = {}
        for name, each in list(self.topics.items()):
            if each.is_lite or not any(key.startswith(RESERVE) for key in each.attributes or ()):
                continue
            from pocketmq.store.queue.topic_retention import Reserved

            try:
                reserved = Reserved.parse(each.attributes)
            except IllegalArgument as error:
                log.error("topic %s keeps all of its messages: %s", name, error)
                continue
            if reserved is not None:
                found[name] = reserved
        return found

    def queue_now(self, topic: str, queue_id: int) -> int:
        """Return the queue for a message that was in this one before: another if the topic has fewer now.

        Ours: RocketMQ stores it in the old queue, from which no client reads any more.
        """
        found = self.topics.get(topic)
        if found is None or queue_id < max(found.read_queues, found.write_queues, 1):
            return queue_id
        return queue_id % max(found.read_queues, 1)

    # ------------------------------------------------------------ changing

    def create_in_send(
        self, topic: str, default_topic: str, producer: str, queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Apply invariant 2; None if the default topic does not allow it."""
        found = self.topics.get(topic)
        if found is not None:
            return found
        is_template = default_topic == AUTO_CREATE_TOPIC
        if is_template and self._config.auto_create_topic_enable:
            self._make_template()
        default = self.topics.get(default_topic)
        if default is None:
            log.warning(
                "Create new topic failed, because the default topic[%s] not exist. producer:[%s]",
                default_topic,
                producer,
            )
            return None
        if is_template and not self._config.auto_create_topic_enable:
            default = self.topics[default_topic] = replace(default, perm=READ_WRITE)
        if not default.perm & Perm.INHERIT:
            log.warning(
                "Create new topic failed, because the default topic[%s] has no perm [%s] "
                "producer:[%s]",
                default_topic,
                default.perm,
                producer,
            )
            return None
        count = max(0, min(queue_nums, default.write_queues))
        found = TopicConfig(
            topic,
            count,
            count,
            default.perm & ~int(Perm.INHERIT),
            filter_type=default.filter_type,
            sys_flag=sys_flag,
        )
        log.info(
            "topic created by a first send topic=%s queues=%d as=%s producer=%s",
            topic,
            count,
            default_topic,
            producer,
        )
        self._put(found)
        return found

    def create_internal(
        self, topic: str, queue_nums: int, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return a retry, dead-letter or transaction topic, creating it if absent.

        Source: createTopicInSendMessageBackMethod.
        """
        found = self.topics.get(topic)
        if found is None:
            found = TopicConfig(topic, queue_nums, queue_nums, perm, sys_flag=sys_flag)
            log.info("topic created by its first use topic=%s queues=%d", topic, queue_nums)
            self._put(found, keep=True)
        return found

    def create_check_max_time(self) -> TopicConfig:
        """Create the topic for half messages that were checked too often."""
        return self.create_internal(TRANS_CHECK_MAX_TIME_TOPIC, 1)

    def update(self, topic: TopicConfig) -> None:
        """Create or replace a topic (UPDATE_AND_CREATE_TOPIC)."""
        old = self.topics.get(topic.topic)
        if old is not None:
            log.info("topic changed old=%s new=%s", old, topic)
        else:
            log.info("topic created %s", topic)
        self._put(topic)

    def update_order_topics(self, order_topics: Iterable[str]) -> None:
        """Apply the name server's ORDER_TOPIC_CONFIG: which topics are ordered."""
        ordered = set(order_topics)
        changed = [
            topic for topic in self.topics.values() if topic.order != (topic.topic in ordered)
        ]
        if changed:
            self.data_version = self.data_version.next(self._clock.now_ms())
        for topic in changed:
            order = not topic.order
            log.info(
                "update order topic config, topic=%s, order=%s",
                topic.topic,
                str(order).lower(),
            )
            # No event: this came from the name server, which would only repeat it.
            self.put(topic.topic, replace(topic, order=order), keep=True)

    def delete(self, topic: str) -> bool:
        """Remove a topic; False if there was none."""
        old = self.topics.get(topic)
        if old is None:
            log.warning("no topic to delete topic=%s", topic)
            return False
        log.debug("topic deleted %s", old)
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.put(topic, None, after=lambda: self._tell([]))
        return True

    def tell_again(self) -> None:
        """Announce every topic as changed: settings were that its registration tells."""
        self.data_version = self.data_version.next(self._clock.now_ms())
        name, topic = next(iter(self.topics.items()))
        self.put(name, topic, keep=True)
        self._tell(list(self.topics.values()))

    def restore_internal(self, store: MessageStore) -> None:
        """Recreate internal topics whose queues exist.

        No request waits for their save when they are created, so a crash may lose them.
        """
        for topic in store.topics():
            if topic not in self.topics and topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                for _, queue_id in store.queues(topic)[-1:]:
                    self.create_internal(topic, queue_id + 1)

    def restore_young(self, store: MessageStore, position: int) -> None:
        """Create the topics, and the further queues, that began at or behind a position of the log.

        For a slave that is promoted: when the log was there, it was last told which topics there are, and the
        messages in those since must be found. What began before and is not in the table was deleted.
        """
        counts: dict[str, int] = {}
        for name, queue_id in store.open_queues():
            known = self.topics.get(name)
            count = 0 if known is None else max(known.read_queues, known.write_queues)
            if queue_id < count or self.is_system(name) or is_system_topic(name):
                continue
            first = store.entries(name, queue_id, store.min_offset(name, queue_id), 1)
            if first and first[0][0] >= position:
                counts[name] = max(counts.get(name, 0), queue_id + 1)
        for name, count in counts.items():
            found = self.topics.get(name)
            if found is None:
                self.create_internal(name, count)
            else:
                more = replace(found, read_queues=count, write_queues=count)
                log.info("the topic has more queues in the log %s", more)
                self._put(more, keep=True)

    def _put(self, topic: TopicConfig, *, keep: bool = False) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.put(topic.topic, topic, keep=keep, after=lambda: self._tell([topic]))

    def _tell(self, topics: list[TopicConfig]) -> None:
        self._events.topics_changed(topics)

    def done(self, waiters: "asyncio.Future[None]") -> None:
        if not self._holds:
            super().done(waiters)
            return
        self._untold.append(waiters)
        asyncio.get_running_loop().call_later(_TOLD_S, resolve, waiters)

    def after_saved(self, calls: list[Callable[[], None]]) -> None:
        self._holds = False
        super().after_saved(calls)

    def hold(self) -> None:
        """Keep waiters of the topics just stored waiting, for listeners of topics_changed (invariant 4)."""
        self._holds = True

    def take_untold(self) -> "list[asyncio.Future[None]]":
        """Return the waiters to resolve once name servers know the current topics."""
        untold, self._untold = self._untold, []
        return untold
