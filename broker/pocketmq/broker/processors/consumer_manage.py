"""What the members of a group ask: who is with me, where am I, is this queue mine.

GET_CONSUMER_LIST_BY_GROUP, QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, LOCK_BATCH_MQ,
UNLOCK_BATCH_MQ. Source: ConsumerManageProcessor, AdminBrokerProcessor, RocketMQ 4.9.7; wire.md 3.5, 3.7.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.delivery_record import EventKind
from pocketmq.broker.parts import Members, Messages, Tables
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    GetConsumerListHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from pocketmq.remoting.message import MessageQueue

log = logging.getLogger(__name__)


class ConsumerManageProcessor:
    """Handlers of the five codes."""

    def __init__(
        self,
        tables: Tables,
        members: Members,
        messages: Messages,
    ) -> None:
        self._offsets = tables.offsets
        self._policies = members.policies
        self._consumers = members.consumers
        self._locks = members.locks
        self._store = messages.store
        self._reach = messages.reach
        self._deliveries = messages.deliveries

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock_batch,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch,
        }

    def get_consumer_list(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """The client ids of a group; nobody is SYSTEM_ERROR, which clients take for `not now`."""
        name = GetConsumerListHeader.parse(request.ext).consumer_group
        group = self._consumers.get(name)
        if group is not None and group.channels:
            ids = self._policies.of(name).peers(group, connection)
            if ids:
                body = fastjson.dumps({"consumerIdList": ids})
                return request.answer(ResponseCode.SUCCESS, None, {}, body)
        log.warning("getConsumerGroupInfo failed, %s %s", name, connection.peer)
        return request.answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}", {})

    def query_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Where a group goes on in a queue.

        Without a stored offset: 0 while the queue's beginning is there and still in memory, whatever
        consumeFromWhere says; else QUERY_NOT_FOUND, and the client decides (wire.md 3.5).
        """
        header = QueryConsumerOffsetHeader.parse(request.ext)
        topic, queue_id = header.topic, header.queue_id
        group = header.consumer_group
        queue = QueueOf(group, topic, queue_id)
        offset = self._policies.of(group).start(queue, connection)
        if offset < 0:
            if self._store.min_offset(topic, queue_id) > 0 or self._reach.begins_on_disk(
                topic, queue_id
            ):
                return request.answer(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                    {},
                )
            offset = 0
        return request.answer(ResponseCode.SUCCESS, None, {"offset": str(offset)})

    def update_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A group has come so far; any value is taken."""
        header = UpdateConsumerOffsetHeader.parse(request.ext)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        # Members commit one-way, administrators do not.
        if self._policies.of(group).commit(
            QueueOf(group, topic, queue_id),
            header.commit_offset,
            connection,
            as_member=request.is_oneway,
        ):
            return request.answer(ResponseCode.SUCCESS, None, {})
        online = self._consumers.get(group)
        is_member = online is not None and connection in online.channels
        if self._offsets.resets:
            # Members commit one-way, some over another connection (vipChannelEnabled); administrators do not.
            may_be_old = is_member or request.is_oneway
            if may_be_old and self._offsets.is_reset(group, topic, queue_id, header.commit_offset):
                log.info("an offset does not count, the queue was reset %s", header)
                return request.answer(ResponseCode.SUCCESS, "Offset has been previously reset", {})
            self._offsets.resets.pop((group, topic, queue_id), None)
        if not is_member:
            old = self._offsets.query(group, topic, queue_id)
            key = (group, topic, queue_id)
            text = f"by {connection.peer}, which is no member"
            self._deliveries.event(EventKind.RESET, key, max(old, 0), header.commit_offset, text)
        commit = self._offsets.commit
        if not is_member and not request.is_oneway:
            commit = self._offsets.set_by_hand
        commit(group, topic, queue_id, header.commit_offset, connection.peer)
        return request.answer(ResponseCode.SUCCESS, None, {})

    def lock_batch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Queues for orderly consumption; answers those that are the client's now."""
        group, client_id, queues = _lock_body(request)
        group = self._policies.of(group).lock_name(group, client_id)
        locked = self._locks.lock_batch(group, queues, client_id)
        body = fastjson.dumps({"lockOKMQSet": [_queue_json(queue) for queue in locked]})
        return request.answer(ResponseCode.SUCCESS, None, None, body)

    def unlock_batch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The client gives queues back."""
        group, client_id, queues = _lock_body(request)
        group = self._policies.of(group).lock_name(group, client_id)
        self._locks.unlock_batch(group, queues, client_id)
        return request.answer(ResponseCode.SUCCESS)


def _lock_body(request: RemotingCommand) -> tuple[str, str, list[MessageQueue]]:
    data = fastjson.loads_request(request.body)
    if not isinstance(data, Mapping):
        raise HeaderError("the body of a lock request is not a JSON object")
    group, client_id = data.get("consumerGroup"), data.get("clientId")
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise HeaderError("a lock request lacks consumerGroup or clientId")
    queues = data.get("mqSet")
    if not isinstance(queues, list):
        raise HeaderError("mqSet of a lock request is not a list")
    return group, client_id, [_queue(queue) for queue in queues]


def _queue(data: Any) -> MessageQueue:
    try:
        return MessageQueue(str(data["topic"]), str(data["brokerName"]), int(data["queueId"]))
    except (KeyError, TypeError, ValueError):
        raise HeaderError("an entry of mqSet is no message queue") from None


def _queue_json(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
