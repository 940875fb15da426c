"""Requests of a group's members: member list, offsets, queue locks.

GET_CONSUMER_LIST_BY_GROUP, QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, LOCK_BATCH_MQ, UNLOCK_BATCH_MQ.
"""

from collections.abc import Mapping
from typing import Any

from pocketmq.broker.acts.clients import ClientActs
from pocketmq.broker.acts.offsets import OffsetActs
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.model.message import MessageQueue
from pocketmq.model.queue_json import queue_json
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    GetConsumerListHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from pocketmq.remoting.java_number import number
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Steps

# Queues of one request that are locked before others are served.
_LOCKS_AT_ONCE = 50


class ConsumerManageProcessor:
    """Handlers of the five codes."""

    def __init__(self, clients: ClientActs, offsets: OffsetActs) -> None:
        self._clients = clients
        self._offsets = offsets

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
        name = GetConsumerListHeader.parse(request.ext).consumer_group
        try:
            ids = self._clients.members(name, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, {})
        body = fastjson.dumps({"consumerIdList": ids})
        return request.answer(ResponseCode.SUCCESS, None, {}, body)

    def query_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = QueryConsumerOffsetHeader.parse(request.ext)
        queue = GroupQueue(header.consumer_group, header.topic, header.queue_id)
        try:
            # Only the Java client 5.0.0 (Spring's starter 2.2.3) asks not to get 0, and would skip messages
            # sent before its start. A 4.9 broker, as which this one reports itself, gives it 0.
            or_zero = header.set_zero_if_not_found is not False or request.version == Version.V5_0_0
            offset = self._offsets.query(queue, connection, or_zero=or_zero)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, {})
        return request.answer(ResponseCode.SUCCESS, None, {"offset": str(offset)})

    def update_offset(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = UpdateConsumerOffsetHeader.parse(request.ext)
        queue = GroupQueue(header.consumer_group, header.topic, header.queue_id)
        counts = self._offsets.commit(
            queue, header.commit_offset, connection, as_member=request.is_oneway
        )
        remark = None if counts else "Offset has been previously reset"
        return request.answer(ResponseCode.SUCCESS, remark, {})

    def lock_batch(self, request: RemotingCommand, connection: Connection) -> Steps:
        group, client_id, queues = _lock_body(request)
        locked: list[MessageQueue] = []
        for at in range(0, len(queues), _LOCKS_AT_ONCE):
            some = queues[at : at + _LOCKS_AT_ONCE]
            locked += self._clients.lock(group, client_id, some)
            yield
        body = fastjson.dumps({"lockOKMQSet": [queue_json(queue) for queue in locked]})
        return request.answer(ResponseCode.SUCCESS, None, None, body)

    def unlock_batch(self, request: RemotingCommand, connection: Connection) -> Steps:
        group, client_id, queues = _lock_body(request)
        for at in range(0, len(queues), _LOCKS_AT_ONCE):
            self._clients.unlock(group, client_id, queues[at : at + _LOCKS_AT_ONCE])
            yield
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
        return MessageQueue(str(data["topic"]), str(data["brokerName"]), number(data["queueId"]))
    except (KeyError, TypeError, ValueError):
        raise HeaderError("an entry of mqSet is not a message queue") from None
