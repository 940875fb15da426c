"""Topics: make, change, delete, list, their offsets. Source: AdminBrokerProcessor, RocketMQ 4.9.7, 5.3.3.

Codes 17, 18, 21, 202, 215, 305, 351. A change is in topics.json and at the name servers before it is
answered: TopicConfigManager sees to both.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.pop.receipt import pop_retry_topic
from pocketmq.broker.stats import BrokerStats
from pocketmq.broker.topic_config import TopicConfig, TopicConfigManager
from pocketmq.broker.wire.admin_answers import (
    UNSET_REMARK,
    asks_as_five,
    json_answer,
    page,
    queue_key,
    topic_missing,
)
from pocketmq.broker.wire.when_stored import Answer, answered, when_stored
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    CreateTopicHeader,
    DeleteTopicHeader,
    GetAllTopicConfigHeader,
    GetTopicConfigHeader,
    GetTopicStatsInfoHeader,
)
from pocketmq.remoting.names import topic_fault
from pocketmq.store import MessageStore
from pocketmq.store.consume_queue_table import BATCH_QUEUE, QUEUE_TYPE, SIMPLE_QUEUE

log = logging.getLogger(__name__)

# Ours: a topic of more queues than this is a mistake, and each queue costs a file.
QUEUE_COUNT_MAX = 65_536
_PERM_MAX = 7


class AdminTopicProcessor:
    """Handlers over the topic table and the queues of the store."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
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
            header.topic_filter_type,
            header.topic_sys_flag or 0,
        )
        fault = self._fault(wanted) or self._apply_attributes(wanted, header.attributes)
        if fault is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        self._topics.update(wanted)
        log.info("topic updated topic=%s by=%s", header.topic, connection.peer)
        return when_stored(
            request, request.answer(ResponseCode.SUCCESS, UNSET_REMARK), self._topics.stored()
        )

    def update_topics(self, request: RemotingCommand, connection: Connection) -> Answer:
        data = fastjson.loads_request(request.body)
        rows = data.get("topicConfigList") if isinstance(data, Mapping) else None
        if not isinstance(rows, list):
            raise HeaderError("the body has no topicConfigList")
        try:
            wanted = [TopicConfig.from_json(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"a topic of topicConfigList is broken: {error!r}") from error
        for topic in wanted:
            changes = ",".join(
                name if name.startswith("-") else f"{name}={value}"
                for name, value in topic.attributes.items()
            )
            topic.attributes = {}
            fault = self._fault(topic) or self._apply_attributes(topic, changes)
            if fault is not None:
                return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        for topic in wanted:
            self._topics.update(topic)
        log.info("topics updated count=%d by=%s", len(wanted), connection.peer)
        return when_stored(request, request.answer(ResponseCode.SUCCESS), self._topics.stored())

    def _fault(self, topic: TopicConfig) -> str | None:
        """Why a topic is refused: RocketMQ's rules for names, and ours for numbers."""
        name = topic.topic_name
        fault = topic_fault(name)
        if fault is not None:
            return fault
        if self._topics.is_system(name):
            return f"The topic[{name}] is conflict with system topic."
        for count in (topic.read_queue_nums, topic.write_queue_nums):
            if not 0 <= count <= QUEUE_COUNT_MAX:
                return f"a topic has 0 to {QUEUE_COUNT_MAX} queues, not {count}"
        if not 0 <= topic.perm <= _PERM_MAX:
            return f"the permission of a topic is 0 to {_PERM_MAX}, not {topic.perm}"
        return None

    def _apply_attributes(self, topic: TopicConfig, changes: str | None) -> str | None:
        """Old attributes with the changes of 5.x tools, `+a=b` and `-a`, applied; or what is wrong.

        The remarks about queue.type are RocketMQ 5.5's, but that we make no batch queues.
        """
        old = self._topics.get(topic.topic_name)
        attributes = dict(old.attributes) if old is not None else {}
        for change in (changes or "").split(","):
            change = change.strip()
            if not change:
                continue
            name, equals, value = change[1:].partition("=")
            if name == QUEUE_TYPE:
                if old is not None:
                    return f"attempt to update an unchangeable attribute. key: {name}"
                if value not in (SIMPLE_QUEUE, BATCH_QUEUE):
                    return f"value is not in set: [{SIMPLE_QUEUE}, {BATCH_QUEUE}]"
                if value == BATCH_QUEUE:
                    return (
                        f"{name}={value} is not made by this broker: it stores batches message by "
                        f"message, and clients read them the same. Create the topic without {name}"
                    )
            if change[0] == "+" and name and equals:
                attributes[name] = value
            elif change[0] == "-" and name and not equals:
                attributes.pop(name, None)
            else:
                return f"kv string format wrong: {change!r}; attributes are +name=value or -name"
        topic.attributes = attributes
        return None

    def delete_topic(self, request: RemotingCommand, connection: Connection) -> Answer:
        topic = DeleteTopicHeader.parse(request.ext).topic
        fault = topic_fault(topic)
        if fault is None and self._topics.is_system(topic):
            fault = f"The topic[{topic}] is conflict with system topic."
        if fault is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        groups = self._offsets.groups_of(topic)
        again = [pop_retry_topic(topic, group, v2=v2) for group in groups for v2 in (False, True)]
        names = [topic, *(name for name in again if self._topics.get(name) is not None)]
        for name in names:
            self._topics.delete(name)
        stored = self._topics.stored()
        if stored is None:
            return self._deleted(request, connection, names)
        return self._delete_when_stored(request, connection, names, stored)

    async def _delete_when_stored(
        self,
        request: RemotingCommand,
        connection: Connection,
        names: list[str],
        stored: "asyncio.Future[None]",
    ) -> RemotingCommand:
        """A topic whose deletion could not be saved is there still, and so are its messages."""
        answer = await answered(request, request.answer(ResponseCode.SUCCESS), stored)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        return self._deleted(request, connection, names)

    def _deleted(
        self, request: RemotingCommand, connection: Connection, names: list[str]
    ) -> RemotingCommand:
        for name in names:
            if self._topics.get(name) is not None:
                # Somebody has made it again meanwhile.
                continue
            self._store.delete_topic(name)
            # As in 5.x: a topic that is made again under the name must not begin with old offsets.
            self._offsets.remove_topic(name)
            self._stats.forget_topic(name)
            log.info("topic deleted topic=%s by=%s", name, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

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
        for queue_id in range(found.write_queue_nums):
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
