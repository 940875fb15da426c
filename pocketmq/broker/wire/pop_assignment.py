"""QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE: the broker assigns queues.

Source: QueryAssignmentProcessor, AdminBrokerProcessor, RocketMQ 5.3.3; wire.md 2.6. An answer without
messageQueueAssignments tells the client to keep its assignment.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.broker.groups.allocation import utf16_order
from pocketmq.broker.groups.consumer_group import BROADCASTING
from pocketmq.broker.parts import Members, Tables
from pocketmq.broker.pop.assignment import TopicRoutes, UnknownStrategy, pop_share, pull_share
from pocketmq.broker.pop.request_mode import POP, MessageRequestMode
from pocketmq.broker.wire.admin.answers import json_answer, topic_missing
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


class PopAssignmentProcessor:
    """Handlers of the three codes."""

    def __init__(
        self,
        tables: Tables,
        members: Members,
        routes: TopicRoutes,
    ) -> None:
        self._policies = members.policies
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = members.consumers
        self._modes = tables.request_modes
        self._routes = routes

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_modes,
        }

    async def query_assignment(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Return the member's queues of one topic, and whether it pulls or pops them."""
        body = _object(request)
        topic, group = _text(body, "topic"), _text(body, "consumerGroup")
        mode = self._modes.get(topic, group)
        if not self._policies.of(group).may_pop(group):
            # Ours: members of such a group share queues with those that subscribe the same, by pulls.
            mode = MessageRequestMode(topic, group)
        queues = await self._share(body, mode, connection)
        if queues is None:
            return json_answer(request, {})
        assignments = [
            {
                "messageQueue": {
                    "brokerName": queue.broker_name,
                    "queueId": queue.queue_id,
                    "topic": queue.topic,
                },
                "mode": mode.mode,
            }
            for queue in queues
        ]
        return json_answer(request, {"messageQueueAssignments": assignments})

    async def _share(
        self, body: Mapping[str, Any], mode: MessageRequestMode, connection: Connection
    ) -> list[MessageQueue] | None:
        """Return the queues; None if they cannot be determined."""
        topic, group = mode.topic, mode.group
        queues = await self._routes.queues(topic)
        if not queues:
            if not topic.startswith(RETRY_PREFIX):
                log.warning(
                    "no assignment, because no broker has the topic group=%s topic=%s", group, topic
                )
            return None
        if body.get("messageModel") == BROADCASTING:
            return queues
        online = self._consumers.get(group)
        if online is None:
            log.warning(
                "no assignment, because the group has no members group=%s topic=%s", group, topic
            )
            return None
        ids = self._policies.of(group).peers(online, connection)
        members = sorted(set(ids), key=utf16_order)
        member, strategy = _text(body, "clientId"), str(body.get("strategyName"))
        try:
            if mode.mode == POP:
                return pop_share(queues, members, member, strategy, mode.pop_share_queue_num)
            return pull_share(queues, members, member, strategy)
        except UnknownStrategy:
            log.warning(
                "no assignment, because the strategy is unknown; the client allocates queues itself "
                "group=%s strategy=%r peer=%s",
                group,
                strategy[:100],
                connection.peer,
            )
            return None

    def set_mode(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Set whether a group pulls or pops a topic, for an administrator."""
        body = _object(request)
        topic, group = _text(body, "topic"), _text(body, "consumerGroup")
        if topic.startswith(RETRY_PREFIX):
            return request.answer(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self._topics.get(topic) is None:
            return topic_missing(request, topic)
        if self._groups.find(group) is None:
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        from pocketmq.model.row_faults import mode_row_fault

        fault = mode_row_fault(body)
        if fault is not None:
            return request.answer(ResponseCode.SYSTEM_ERROR, fault)
        try:
            mode = MessageRequestMode.from_json(body)
        except (KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"cannot read the message request mode: {error}") from error
        self._modes.set(mode)
        return request.answer(ResponseCode.SUCCESS)

    def get_modes(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Return all modes, as a slave of 5.x requests them."""
        return json_answer(request, self._modes.to_json())


def _object(request: RemotingCommand) -> Mapping[str, Any]:
    data = fastjson.loads_request(request.body)
    if not isinstance(data, Mapping):
        raise HeaderError("the request's body is not a JSON object")
    return data


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise HeaderError(f"the request's body lacks {name!r}")
    return value
