"""Offsets of queues and of groups. Source: AdminBrokerProcessor, RocketMQ 4.9.7.

Codes 29-32 (of a queue), 43, 45 (all, for slaves), 208, 303, 308, 314, 317 (of groups).
"""

import logging
from collections.abc import Callable
from typing import Any, get_args

from pocketmq.broker.acts.progress import ProgressActs, TopicProgress
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.wire.admin.answers import (
    asks_as_five,
    json_answer,
    queue_key,
    topic_missing,
)
from pocketmq.remoting.admin_headers import (
    CloneGroupOffsetHeader,
    GetBrokerConsumeStatsHeader,
    GetConsumeStatsHeader,
    QueryConsumeTimeSpanHeader,
    QueryCorrectionOffsetHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import (
    GetEarliestMsgStoretimeHeader,
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    SearchOffsetHeader,
)
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store.queue.offset_by_time import Boundary

log = logging.getLogger(__name__)


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
        self._address = node.address
        self._offsets = tables.offsets
        self._store = messages.store
        self._who = node.who
        self._progress = ProgressActs(node, tables, consumers, messages)
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
        wanted: list[str] | None = None
        if header.topic_list:
            wanted = [topic for topic in header.topic_list.split(";") if topic]
        if header.topic and header.topic.strip():
            wanted = [header.topic]
        table: dict[Any, Any] = {}
        tps = 0.0
        for each in self._progress.of_group(header.consumer_group, wanted):
            table.update(self._queues(request, each))
            tps += each.tps
        return json_answer(request, {"consumeTps": tps, "offsetTable": table})

    def get_broker_consume_stats(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        ordered = GetBrokerConsumeStatsHeader.parse(request.ext).is_order
        rows: list[dict[str, list[dict[str, Any]]]] = []
        lag = in_flight = 0
        for group, topics in self._progress.of_all(ordered=ordered):
            lag += sum(each.lag for each in topics)
            in_flight += sum(each.in_flight for each in topics)
            stats = [
                {"consumeTps": each.tps, "offsetTable": self._queues(request, each)}
                for each in topics
            ]
            rows.append({group: stats})
        content: dict[str, Any] = {
            "brokerAddr": self._address,
            "consumeStatsList": rows,
            "totalDiff": lag,
        }
        if asks_as_five(request):
            content["totalInflightDiff"] = in_flight
        return json_answer(request, content)

    def _queues(self, request: RemotingCommand, progress: TopicProgress) -> dict[Any, Any]:
        """Return an OffsetWrapper per queue."""
        five = asks_as_five(request)
        return {
            queue_key(self._broker_name, progress.topic, each.queue_id): {
                "brokerOffset": each.end,
                "consumerOffset": each.consumed,
                "lastTimestamp": each.last_ms,
                **({"pullOffset": each.pulled} if five else {}),
            }
            for each in progress.queues
        }

    def get_time_span(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryConsumeTimeSpanHeader.parse(request.ext)
        spans = self._progress.spans(header.group, header.topic)
        if spans is None:
            return topic_missing(request, header.topic)
        rows = [
            {
                "consumeTimeStamp": each.consumed_ms,
                "delayTime": each.delay_ms,
                "maxTimeStamp": each.last_ms,
                "messageQueue": dict(queue_key(self._broker_name, header.topic, each.queue_id)),
                "minTimeStamp": each.first_ms,
            }
            for each in spans
        ]
        return json_answer(request, {"consumeTimeSpanSet": rows})

    def get_correction_offsets(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = QueryCorrectionOffsetHeader.parse(request.ext)
        found = self._progress.corrections(header.compare_group, header.topic, header.filter_groups)
        return json_answer(request, {"correctionOffsets": found})

    def clone_group(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Ours: without a topic all topics are copied, where RocketMQ copies the one named '' (nothing)."""
        header = CloneGroupOffsetHeader.parse(request.ext)
        named = [header.topic] if header.topic is not None and header.topic.strip() else None
        copied = self._progress.copy(
            header.src_group,
            header.dest_group,
            named,
            offline=bool(header.offline),
            by=self._who(connection),
        )
        log.info(
            "offsets copied from=%s to=%s topics=%s by=%s",
            header.src_group,
            header.dest_group,
            copied,
            connection.peer,
        )
        return request.answer(ResponseCode.SUCCESS)


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, ext={"offset": str(offset)})
