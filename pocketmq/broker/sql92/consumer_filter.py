"""ConsumerFilterManager: the SQL92 expression of each group and topic, in config/consumerFilter.json.

Source: ConsumerFilterManager, ConsumerFilterData, RocketMQ 4.9.7.

1. Only a greater client version (the subscription's subVersion) replaces an expression.
2. When a group unsubscribes or leaves, its data becomes dead. The bits of dead data are still set, so that a
   returning group finds maps it can trust; it is removed a day later, or, PocketMQ only, as the oldest when
   all dead ones take more than DEAD_SIZE_MAX: a client may use any number of names.
3. Data loaded from the file counts as dead until its group registers again.
4. An expression that does not parse removes the old one: pulls are then answered with 27.
Owner: the broker, on its event loop.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pocketmq.broker.sql92.bloom import BloomFilter, BloomFilterData, is_hit
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.message_codec import properties_to_dict
from pocketmq.model.sql92.errors import SelectorError
from pocketmq.model.sql92.filter import Filter, compile_expression
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.clock import Clock
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

CLEAN_TIME_SPAN_MS = 24 * 3_600_000
"""filterDataCleanTimeSpan: how long dead data is kept."""
_LOADED_DEAD_MS = 30_000
DEAD_SIZE_MAX = 16 << 20
"""Characters of dead expressions, and _ROW_SIZE for each."""
_ROW_SIZE = 1_000


@dataclass(slots=True)
class ConsumerFilterData:
    """One group's expression for one topic.

    client_version: the subscription's subVersion; born_ms, dead_ms: wall clock, dead_ms 0 while alive.
    compiled is None when an expression from the file no longer parses: all messages pass then.
    """

    group: str
    topic: str
    expression: str
    expression_type: str
    bloom: BloomFilterData | None
    client_version: int
    born_ms: int
    dead_ms: int
    compiled: Filter | None

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return True if a message passes; the rule of ExpressionMessageFilter.isMatchedByCommitLog."""
        return self.compiled is None or self.compiled.matches(properties)

    def may_match(self, store_ms: int, bit_map: bytes | None, bloom: BloomFilter) -> bool:
        """Return True if a match is possible by the ConsumeQueueExt unit; False is certain.

        The bits of a record that was stored before this expression was born mean nothing.
        """
        data = self.bloom
        if data is None or not bloom.is_valid(data) or store_ms <= self.born_ms:
            return True
        if not bit_map or len(bit_map) * 8 != data.bit_num:
            return True
        return is_hit(data, bit_map)

    def to_json(self) -> dict[str, Any]:
        bloom = self.bloom
        return {
            "bloomFilterData": None
            if bloom is None
            else {"bitNum": bloom.bit_num, "bitPos": list(bloom.bit_pos)},
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse an entry. Raises: KeyError, TypeError, ValueError if it is not RocketMQ's."""
        bloom = data.get("bloomFilterData")
        expression = str(data["expression"])
        compiled: Filter | None = None
        try:
            compiled = compile_expression(expression)
        except SelectorError as error:
            log.error(
                "cannot parse a stored filter, it lets everything through group=%s topic=%s reason=%s",
                *(data["consumerGroup"], data["topic"], error),
            )
        return cls(
            group=str(data["consumerGroup"]),
            topic=str(data["topic"]),
            expression=expression,
            expression_type=str(data["expressionType"]),
            bloom=None
            if bloom is None
            else BloomFilterData(tuple(map(int, bloom["bitPos"])), int(bloom["bitNum"])),
            client_version=int(data["clientVersion"]),
            born_ms=int(data["bornTime"]),
            dead_ms=int(data["deadTime"]),
            compiled=compiled,
        )


class ConsumerFilterManager(ConfigManager):
    """Owner of consumerFilter.json."""

    def __init__(
        self,
        file: ConfigFile,
        clock: Clock,
        bloom: BloomFilter,
        clean_time_span_ms: Callable[[], int] = lambda: CLEAN_TIME_SPAN_MS,
    ) -> None:
        super().__init__(file)
        self.bloom = bloom
        self._clock = clock
        self._clean_time_span_ms = clean_time_span_ms
        self._by_topic: dict[str, dict[str, ConsumerFilterData]] = {}
        # The dead by topic and group, the first to be removed first; and what all of them take.
        self._dead: dict[tuple[str, str], int] = {}
        self._dead_size = 0

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return the group's SQL92 expression for a topic; None without one (a pull gets 27), or if it is
        bad.
        """
        return self._by_topic.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilterData]:
        """Return all groups' expressions for a topic, dead ones included (invariant 2)."""
        return self._by_topic.get(topic, {}).values()

    def bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """Return the map of one record for ConsumeQueueExt; None if no group filters the topic.

        Source: CommitLogDispatcherCalcBitMap, RocketMQ 4.9.7.
        """
        groups = self._by_topic.get(topic)
        if not groups:
            return None
        return self.bloom.bit_map(
            data.bloom
            for data in groups.values()
            if data.bloom is not None
            and data.compiled is not None
            and data.compiled.matches(properties)
        )

    def bit_map_of(self, topic: str, properties: bytes) -> bytes:
        """Return `bit_map` of a record's property bytes; empty without a map, as ConsumeQueueExt keeps it."""
        if not self._by_topic.get(topic):
            return b""
        return self.bit_map(topic, properties_to_dict(properties)) or b""

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take a group's subscriptions from a heartbeat; expressions for other topics become dead."""
        named: set[str] = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if not subscription.is_tag and subscription.sub_string:
                self._register(group, subscription)
        now_ms = self._clock.now_ms()
        for topic, groups in list(self._by_topic.items()):
            data = groups.get(group)
            if data is not None and topic not in named and not data.is_dead:
                self._bury(data, now_ms)

    def unregister(self, group: str) -> None:
        """Mark the group's data dead: its last member left."""
        now_ms = self._clock.now_ms()
        for groups in list(self._by_topic.values()):
            data = groups.get(group)
            if data is not None and not data.is_dead:
                self._bury(data, now_ms)

    def clean(self) -> None:
        """Remove data that has been dead for too long."""
        oldest_ms = self._clock.now_ms() - self._clean_time_span_ms()
        for topic, groups in list(self._by_topic.items()):
            for group, data in list(groups.items()):
                if data.is_dead and data.dead_ms <= oldest_ms:
                    log.info(
                        "removed the filter of a group that left long ago group=%s topic=%s",
                        group,
                        topic,
                    )
                    del groups[group]
                    self._is_not_dead(topic, group)
            if not groups:
                del self._by_topic[topic]

    def to_json(self) -> dict[str, Any]:
        self.clean()
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: data.to_json() for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self._by_topic.items()
            }
        }

    def from_json(self, data: Any) -> None:
        """Load the file as RocketMQ does: one entry's Bloom data of another size makes it skip all."""
        loaded: dict[str, dict[str, ConsumerFilterData]] = {}
        now_ms = self._clock.now_ms()
        for topic, held in _mapping(_mapping(data).get("filterDataByTopic")).items():
            for group, entry in _mapping(_mapping(held).get("groupFilterData")).items():
                try:
                    found = ConsumerFilterData.from_json(_mapping(entry))
                except (KeyError, TypeError, ValueError) as error:
                    log.error(
                        "consumerFilter.json: skipped an entry that cannot be read topic=%s group=%s "
                        "reason=%r",
                        *(topic, group, error),
                    )
                    continue
                if not self.bloom.is_valid(found.bloom):
                    log.info(
                        "consumerFilter.json: ignored, because its Bloom filter has another size wanted "
                        "m=%d k=%d",
                        *(self.bloom.m, self.bloom.k),
                    )
                    return
                if found.dead_ms == 0:
                    found.dead_ms = max(found.born_ms, now_ms - _LOADED_DEAD_MS)
                loaded.setdefault(topic, {})[group] = found
        self._by_topic = loaded
        self._dead, self._dead_size = {}, 0
        dead = (data for groups in loaded.values() for data in groups.values() if data.is_dead)
        for found in sorted(dead, key=lambda each: each.dead_ms):
            self._is_dead(found)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self._by_topic.get(topic, {}).get(group)
        if old is not None and version <= old.client_version:
            if subscription.sub_string != old.expression:
                log.info(
                    "ignored a filter, because its version is not newer group=%s topic=%s version=%d "
                    "held=%d",
                    *(group, topic, version, old.client_version),
                )
            if version == old.client_version and old.is_dead:
                self._revive(old)
            return
        if old is not None and not self._is_changed(old, subscription):
            old.client_version = version
            if old.is_dead:
                self._revive(old)
            self.persist_soon()
            return
        try:
            compiled = compile_expression(subscription.sub_string)
        except SelectorError as error:
            log.error("cannot parse a filter group=%s topic=%s reason=%s", group, topic, error)
            if old is not None:
                del self._by_topic[topic][group]
                self._is_not_dead(topic, group)
                self.persist_soon()
            return
        self._is_not_dead(topic, group)
        self._by_topic.setdefault(topic, {})[group] = ConsumerFilterData(
            group=group,
            topic=topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            bloom=self.bloom.data(group, topic),
            client_version=version,
            born_ms=self._clock.now_ms(),
            dead_ms=0,
            compiled=compiled,
        )
        self.persist_soon()
        log.info(
            "a filter was registered group=%s topic=%s expression=%r version=%d",
            *(group, topic, subscription.sub_string, version),
        )

    def _is_changed(self, old: ConsumerFilterData, subscription: SubscriptionData) -> bool:
        return (
            old.expression != subscription.sub_string
            or old.expression_type != subscription.expression_type
            or old.bloom != self.bloom.data(old.group, old.topic)
        )

    def _revive(self, data: ConsumerFilterData) -> None:
        log.info("a filter is in use again group=%s topic=%s", data.group, data.topic)
        data.dead_ms = 0
        self._is_not_dead(data.topic, data.group)
        self.persist_soon()

    def _bury(self, data: ConsumerFilterData, now_ms: int) -> None:
        log.info("a filter is no longer in use group=%s topic=%s", data.group, data.topic)
        data.dead_ms = now_ms
        self._is_dead(data)
        self.persist_soon()

    def _is_dead(self, data: ConsumerFilterData) -> None:
        """Count a dead filter, and remove the oldest beyond the bound (invariant 2)."""
        key = data.topic, data.group
        self._is_not_dead(*key)
        self._dead[key] = _ROW_SIZE + len(data.expression)
        self._dead_size += self._dead[key]
        while self._dead_size > DEAD_SIZE_MAX:
            topic, group = next(iter(self._dead))
            self._is_not_dead(topic, group)
            groups = self._by_topic.get(topic, {})
            if groups.pop(group, None) is not None and not groups:
                del self._by_topic[topic]

    def _is_not_dead(self, topic: str, group: str) -> None:
        self._dead_size -= self._dead.pop((topic, group), 0)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
