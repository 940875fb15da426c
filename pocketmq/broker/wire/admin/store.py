"""Maintenance of the store: clean up, look into a queue. Source: AdminBrokerProcessor, RocketMQ 4.9.7.

Codes 306, 316, 321, 329.
"""

import logging
from typing import Any

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.wire.admin.answers import UNSET_REMARK
from pocketmq.model.names import is_system_topic
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import QueryConsumeQueueHeader
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)

# Ours: one answer is one frame; RocketMQ lets a caller ask for as many as memory holds.
_ENTRIES_MAX = 10_000


class AdminStoreProcessor:
    """Handlers over the store."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigManager, consumers: ConsumerManager
    ) -> None:
        self._store = store
        self._topics = topics
        self._consumers = consumers

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_files,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_queue,
        }

    def clean_expired_queues(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        # Ours: RocketMQ deletes queues of topics that are in use, too. Their offsets begin anew then, and
        # groups that have consumed all wait far behind: they miss what comes. Retention leaves each queue
        # its last file.
        count = self._store.clean_expired_consume_queues(self._topics.topics)
        log.warning("expired consume queues deleted count=%d by=%s", count, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    def clean_unused_topics(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        # The broker's own are not all in the table: op messages tell which transactions are over.
        own = {topic for topic in self._store.topics() if is_system_topic(topic)}
        deleted = self._store.clean_unused_topics(own.union(self._topics.topics))
        log.warning("queues of unknown topics deleted topics=%s by=%s", deleted, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    def delete_expired_files(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        count = self._store.delete_expired_files(manual=True)
        log.warning("expired commit log files deleted count=%d by=%s", count, connection.peer)
        return request.answer(ResponseCode.SUCCESS)

    def query_queue(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryConsumeQueueHeader.parse(request.ext)
        topic, queue_id = header.topic, header.queue_id
        if (topic, queue_id) not in self._store.queues(topic):
            return request.answer(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= header.index < high:
            return request.answer(
                ResponseCode.SUCCESS, f"Index {header.index} of {queue_id}@{topic} is not exist!"
            )
        content: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
        if header.consumer_group is not None:
            group = self._consumers.groups.get(header.consumer_group)
            subscription = None if group is None else group.subscriptions.get(topic)
            content["filterData"] = "null"
            if subscription is None:
                content["filterData"] = f"{header.consumer_group}@{topic} is not online!"
            else:
                content["subscriptionData"] = subscription.to_json()
        count = min(max(0, header.count), _ENTRIES_MAX)
        content["queueData"] = [
            self._entry(topic, queue_id, *entry)
            for entry in self._store.entries(topic, queue_id, header.index, count)
        ]
        return request.answer(ResponseCode.SUCCESS, UNSET_REMARK, body=fastjson.dumps(content))

    def _entry(
        self, topic: str, queue_id: int, position: int, size: int, code: int
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "eval": False,
            "physicOffset": position,
            "physicSize": size,
            "tagsCode": code,
        }
        unit = self._store.ext_unit(topic, queue_id, code)
        if unit is not None:
            row["extendDataJson"] = fastjson.dumps(
                {"msgStoreTime": unit.store_ms, "tagsCode": unit.tags_code}
            ).decode()
        return row
