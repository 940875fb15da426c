"""Topics: create, change, delete, list, their offsets. Source: AdminBrokerProcessor, RocketMQ 4.9.7, 5.3.3.

Codes 17, 18, 21, 202, 215, 305, 351. A change is in topics.json and at the name servers before it is
answered: TopicConfigManager does both.
"""

from collections.abc import Mapping
from typing import Any

from pocketmq.broker.acts.tables import TopicActs, TopicChange
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.stats import BrokerStats
from pocketmq.broker.refused import Refused
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.wire.admin.answers import (
    UNSET_REMARK,
    asks_as_five,
    json_answer,
    page,
    queue_key,
    topic_missing,
)
from pocketmq.broker.wire.when_stored import Answer, Saved, answered, when_stored
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting import fastjson
from pocketmq.remoting.admin_headers import (
    CreateTopicHeader,
    DeleteTopicHeader,
    GetAllTopicConfigHeader,
    GetTopicConfigHeader,
    GetTopicStatsInfoHeader,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store import MessageStore


class AdminTopicProcessor:
    """Handlers over the topic table and the queues of the store."""

    def __init__(
        self,
        config: BrokerConfig,
        acts: TopicActs,
        topics: TopicConfigManager,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._acts = acts
        self._topics = topics
        self._store = store
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
        }

    # ------------------------------------------------------------ changing

    def update_topic(self, request: RemotingCommand, connection: Connection) -> Answer:
        header = CreateTopicHeader.parse(request.ext)
        # 4.9 drops `order` of this request: a topic is ordered by the name server's ORDER_TOPIC_CONFIG.
        wanted = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            filter_type=header.topic_filter_type,
            sys_flag=header.topic_sys_flag or 0,
        )
        change = TopicChange(wanted, header.attributes)
        return self._update(request, connection, [change], UNSET_REMARK)

    def update_topics(self, request: RemotingCommand, connection: Connection) -> Answer:
        data = fastjson.loads_request(request.body)
        rows = data.get("topicConfigList") if isinstance(data, Mapping) else None
        if not isinstance(rows, list):
            raise HeaderError("the body lacks topicConfigList")
        from pocketmq.model.row_faults import topic_row_fault

        fault = next((fault for row in rows if (fault := topic_row_fault(row))), None)
        if fault is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        try:
            wanted = [TopicConfig.from_json(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"cannot read a topic of topicConfigList: {error!r}") from error
        changes: list[TopicChange] = []
        for topic in wanted:
            text = ",".join(
                name if name.startswith("-") else f"{name}={value}"
                for name, value in topic.attributes.items()
            )
            changes.append(TopicChange(topic, text))
        return self._update(request, connection, changes, None)

    def _update(
        self,
        request: RemotingCommand,
        connection: Connection,
        wanted: list[TopicChange],
        remark: str | None,
    ) -> Answer:
        try:
            saved = self._acts.update(wanted, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return when_stored(request, request.answer(ResponseCode.SUCCESS, remark), saved)

    def delete_topic(self, request: RemotingCommand, connection: Connection) -> Answer:
        try:
            removal = self._acts.remove(DeleteTopicHeader.parse(request.ext).topic)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        answer = request.answer(ResponseCode.SUCCESS)
        if removal.saved is None:
            self._acts.finish(removal.names, connection)
            return answer
        return self._finished(request, connection, removal.names, removal.saved)

    async def _finished(
        self, request: RemotingCommand, connection: Connection, names: list[str], saved: Saved
    ) -> RemotingCommand:
        """Answer a deletion; if it could not be saved, the topic and its messages still exist."""
        answer = await answered(request, request.answer(ResponseCode.SUCCESS), saved)
        if answer.code == ResponseCode.SUCCESS:
            self._acts.finish(names, connection)
        return answer

    # ------------------------------------------------------------ asking

    def get_all_topics(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetAllTopicConfigHeader.parse(request.ext)
        table = self._topics.topics
        ext = {}
        if header.topic_seq is not None:
            ext["totalTopicNum"] = str(len(table))
            table = page(table, header.topic_seq, header.max_topic_num)
        content = {
            "dataVersion": self._topics.data_version.to_json(),
            "topicConfigTable": {name: topic.to_json() for name, topic in table.items()},
        }
        return json_answer(request, content, ext)

    def get_topic(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = GetTopicConfigHeader.parse(request.ext).topic
        found = self._topics.get(topic)
        if found is None:
            return request.answer(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
            )
        return json_answer(request, {"attributes": {}, **found.to_json()})

    def get_topic_stats(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = GetTopicStatsInfoHeader.parse(request.ext).topic
        found = self._topics.get(topic)
        if found is None:
            return topic_missing(request, topic)
        store = self._store
        table: dict[Any, Any] = {}
        for queue_id in range(found.write_queues):
            end = store.max_offset(topic, queue_id)
            table[queue_key(self._config.broker_name, topic, queue_id)] = {
                "lastUpdateTimestamp": store.store_time_at(topic, queue_id, end - 1) if end else 0,
                "maxOffset": end,
                "minOffset": store.min_offset(topic, queue_id),
            }
        content: dict[str, Any] = {"offsetTable": table}
        if asks_as_five(request):
            content["topicPutTps"] = self._stats.topic_put_tps(topic)
        return json_answer(request, content)

    def get_system_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        return json_answer(request, {"topicList": sorted(self._topics.system_topics)})
