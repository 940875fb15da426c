"""Offsets of queues and of groups. Source: AdminBrokerProcessor, RocketMQ 4.9.7.

Codes 29-32 (of a queue), 43, 45 (all, for slaves), 208, 303, 308, 314, 317 (of groups).
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, get_args

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.parts import Messages, Node, Tables
from pocketmq.broker.wire.admin_answers import (
    asks_as_five,
    json_answer,
    queue_key,
    topic_missing,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.headers import (
    CloneGroupOffsetHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    GetEarliestMsgStoretimeHeader,
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetHeader,
)
from pocketmq.remoting.tables import TopicConfig
from pocketmq.store.offset_by_time import Boundary

log = logging.getLogger(__name__)

_LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF


class AdminOffsetProcessor:
    """Handlers over the queues' and the groups' offsets.

    delay_offsets: level -> next offset of the delay queues.
    """

    def __init__(
        self,
        node: Node,
        tables: Tables,
        consumers: ConsumerManager,
        messages: Messages,
        *,
        delay_offsets: Callable[[], dict[int, int]],
    ) -> None:
        self._broker_name = node.config.broker_name
        self._now_ms = node.clock.now_ms
        self._address = node.address
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = consumers
        self._store = messages.store
        self._stats = messages.stats
        self._pulled_to = messages.deliveries.pulled_to
        self._delay_offsets = delay_offsets

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_offsets,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.get_time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.get_correction_offsets,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_group,
        }

    # ------------------------------------------------------------ one queue

    def search_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = SearchOffsetHeader.parse(request.ext)
        boundary: Boundary = "NEAREST"
        if header.boundary_type is not None and header.boundary_type.upper() in get_args(Boundary):
            boundary = header.boundary_type.upper()  # type: ignore[assignment]
        found = self._store.offset_by_time(
            header.topic, header.queue_id, header.timestamp, boundary
        )
        return _offset(request, found)

    def get_max_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetMaxOffsetHeader.parse(request.ext)
        return _offset(request, self._store.max_offset(header.topic, header.queue_id))

    def get_min_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetMinOffsetHeader.parse(request.ext)
        return _offset(request, self._store.min_offset(header.topic, header.queue_id))

    def get_earliest_time(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = GetEarliestMsgStoretimeHeader.parse(request.ext)
        time_ms = self._store.earliest_time(header.topic, header.queue_id)
        return request.answer(ResponseCode.SUCCESS, ext={"timestamp": str(time_ms)})

    # ------------------------------------------------------------ all, for slaves

    def get_all_offsets(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        return json_answer(request, self._offsets.to_json())

    def get_delay_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return json_answer(request, {"offsetTable": self._delay_offsets()})

    # ------------------------------------------------------------ groups

    def get_consume_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = GetConsumeStatsHeader.parse(request.ext)
        group = header.consumer_group
        wanted = sorted(self._offsets.topics_of(group))
        if header.topic_list:
            wanted = [topic for topic in header.topic_list.split(";") if topic]
        if header.topic and header.topic.strip():
            wanted = [header.topic]
        table: dict[Any, Any] = {}
        tps = 0.0
        for topic in self._consumed(group, wanted):
            table.update(self._queues(request, group, topic.topic, topic.read_queues))
            tps += self._stats.group_get_tps(group, topic.topic)
        return json_answer(request, {"consumeTps": tps, "offsetTable": table})

    def get_broker_consume_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        is_order = GetBrokerConsumeStatsHeader.parse(request.ext).is_order
        five = asks_as_five(request)
        rows: list[dict[str, list[dict[str, Any]]]] = []
        total = inflight = 0
        topics_of = self._topics_by_group()
        for group in self._groups.groups:
            found: list[dict[str, Any]] = []
            for topic in self._consumed(group, sorted(topics_of.get(group, ()))):
                if is_order and not topic.order:
                    continue
                table = self._queues(request, group, topic.topic, topic.write_queues)
                total += sum(row["brokerOffset"] - row["consumerOffset"] for row in table.values())
                if five:
                    inflight += sum(
                        row["pullOffset"] - row["consumerOffset"] for row in table.values()
                    )
                tps = self._stats.group_get_tps(group, topic.topic)
                found.append({"consumeTps": tps, "offsetTable": table})
            rows.append({group: found})
        content: dict[str, Any] = {
            "brokerAddr": self._address,
            "consumeStatsList": rows,
            "totalDiff": total,
        }
        if five:
            content["totalInflightDiff"] = inflight
        return json_answer(request, content)

    def _topics_by_group(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for key in self._offsets.offsets:
            topic, _, group = key.partition("@")
            found.setdefault(group, set()).add(topic)
        return found

    def _consumed(self, group: str, topics: list[str]) -> Iterator[TopicConfig]:
        """Those that exist and that the group, when it is online, subscribes."""
        online = self._consumers.groups.get(group)
        for topic in topics:
            config = self._topics.get(topic)
            if config is None:
                log.warning("consumeStats, topic config not exist, %s", topic)
            elif online is not None and online.subscriptions and topic not in online.subscriptions:
                log.warning(
                    "consumeStats, the consumer group[%s], topic[%s] not exist", group, topic
                )
            else:
                yield config

    def _queues(
        self, request: RemotingCommand, group: str, topic: str, count: int
    ) -> dict[Any, Any]:
        """OffsetWrapper by queue: no stored offset counts as 0."""
        five = asks_as_five(request)
        table: dict[Any, Any] = {}
        for queue_id in range(count):
            consumed = max(0, self._offsets.query(group, topic, queue_id))
            last_ms = self._store.store_time_at(topic, queue_id, consumed - 1) if consumed else 0
            row = {
                "brokerOffset": self._store.max_offset(topic, queue_id),
                "consumerOffset": consumed,
                "lastTimestamp": max(0, last_ms),
            }
            if five:
                row["pullOffset"] = max(consumed, self._pulled_to(group, topic, queue_id))
            table[queue_key(self._broker_name, topic, queue_id)] = row
        return table

    def get_time_span(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryConsumeTimeSpanHeader.parse(request.ext)
        topic = header.topic
        config = self._topics.get(topic)
        if config is None:
            return topic_missing(request, topic)
        store = self._store
        rows: list[dict[str, Any]] = []
        for queue_id in range(config.write_queues):
            earliest = store.earliest_time(topic, queue_id)
            end = store.max_offset(topic, queue_id)
            consumed = self._offsets.query(header.group, topic, queue_id)
            consumed_ms = earliest
            if consumed > 0:
                consumed_ms = store.store_time_at(topic, queue_id, consumed - 1)
            delay_ms = 0
            if consumed < end:
                # Ours: a group without an offset waits for the oldest message, and one that has
                # fallen behind it too; RocketMQ answers the time since 1970 for both.
                waiting = max(consumed, store.min_offset(topic, queue_id))
                waiting_ms = store.store_time_at(topic, queue_id, waiting)
                delay_ms = max(0, self._now_ms() - waiting_ms) if waiting_ms > 0 else 0
            rows.append(
                {
                    "consumeTimeStamp": consumed_ms,
                    "delayTime": delay_ms,
                    "maxTimeStamp": store.store_time_at(topic, queue_id, end - 1),
                    "messageQueue": dict(queue_key(self._broker_name, topic, queue_id)),
                    "minTimeStamp": earliest,
                }
            )
        return json_answer(request, {"consumeTimeSpanSet": rows})

    def get_correction_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The lowest offset of any group per queue; Long.MAX_VALUE where compareGroup is behind it."""
        header = QueryCorrectionOffsetHeader.parse(request.ext)
        found = self._offsets.min_in_all_groups(
            header.topic, self._store.min_offset, header.filter_groups
        )
        for queue_id, offset in self._offsets.of_topic(header.compare_group, header.topic).items():
            if queue_id in found and found[queue_id] > offset:
                found[queue_id] = _LONG_MAX
        return json_answer(request, {"correctionOffsets": found})

    def clone_group(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Ours: without a topic all of them are copied, where RocketMQ copies what is named '' (nothing)."""
        header = CloneGroupOffsetHeader.parse(request.ext)
        source = header.src_group
        named = header.topic is not None and header.topic.strip()
        topics = [header.topic or ""] if named else sorted(self._offsets.topics_of(source))
        online = self._consumers.groups.get(source)
        for topic in topics:
            config = self._topics.get(topic)
            if config is None:
                log.warning("[cloneGroupOffset], topic config not exist, %s", topic)
                continue
            subscribed = None if online is None else online.subscriptions
            if not header.offline and subscribed and topic not in subscribed:
                log.warning(
                    "[cloneGroupOffset], the consumer group[%s], topic[%s] not exist",
                    source,
                    topic,
                )
                continue
            self._offsets.clone(source, header.dest_group, topic)
        log.info(
            "offsets copied from=%s to=%s topics=%s by=%s",
            source,
            header.dest_group,
            topics,
            connection.peer,
        )
        return request.answer(ResponseCode.SUCCESS)


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, ext={"offset": str(offset)})
