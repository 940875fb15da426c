"""Requests that are forwarded to a consumer, and offset reset. Source: AdminBrokerProcessor, Broker2Client,
RocketMQ 4.9.7; for one queue 5.5.0.

Codes 222, 223 (every member of a group), 307, 309 (one member). A member has 10 s to answer; the caller's
connection is served meanwhile, because these handlers are coroutines. What is handed on is kept, and counts,
until then.
"""

import asyncio
import logging
from typing import Any

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Tables
from pocketmq.broker.wire.admin.answers import json_answer, queue_key
from pocketmq.model.message_codec import parse_offset_msg_id
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version, version_name
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import (
    MessageCodecError,
    ProtocolError,
    RemotingError,
    RequestTimeout,
)
from pocketmq.remoting.headers import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusHeader,
    ResetOffsetHeader,
)
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply
from pocketmq.store import MessageStore

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


class AdminClientCallProcessor:
    """Handlers that reach the members of a group."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        consumers: ConsumerManager,
        store: MessageStore,
    ) -> None:
        self._broker_name = node.config.broker_name
        self._events = node.events
        self._who = node.who
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = consumers
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def _members(self, group: str) -> list[ClientChannel]:
        online = self._consumers.groups.get(group)
        return [] if online is None else list(online.channels.values())

    # ------------------------------------------------------------ reset

    def reset_offset(self, request: RemotingCommand, connection: Connection) -> Reply:
        """Tell every member the new offsets, which they store themselves. Answer: those offsets.

        For one queue the broker stores the offset, and tells each member with its next pull (5.x).
        """
        header = ResetOffsetHeader.parse(request.ext)
        topic, group = header.topic, header.group
        log.info(
            "offsets are reset by=%s topic=%s group=%s timestamp=%d force=%s",
            connection.peer,
            topic,
            group,
            header.timestamp,
            str(header.is_force).lower(),
        )
        if header.queue_id is not None and header.queue_id >= 0:
            text = f"by {self._who(connection)} with a reset of the queue"
            return self._reset_queue(request, header, header.queue_id, text)
        config = self._topics.get(topic)
        if config is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        table: dict[int, int] = {}
        for queue_id in range(config.write_queues):
            old = self._offsets.query(group, topic, queue_id)
            if old == -1:
                return request.answer(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"
                )
            new = self._offset_at(topic, queue_id, header.timestamp)
            table[queue_id] = new if header.is_force or new < old else old
        members = self._members(group)
        if not members:
            return request.answer(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {header.timestamp}",
            )
        for member in members:
            if member.version < Version.V3_0_7_SNAPSHOT:
                return _too_old(request, member)
        text = f"by {self._who(connection)} with a reset of the group's members"
        for queue_id, offset in table.items():
            self._events.offset_set(group, topic, queue_id, offset, text)
            self._events.offset_reset(group, topic, queue_id, offset)
        self._push_reset(request, header, table, members)
        content = {
            queue_key(self._broker_name, topic, queue_id): offset
            for queue_id, offset in table.items()
        }
        return json_answer(request, {"offsetTable": content})

    def _reset_queue(
        self, request: RemotingCommand, header: ResetOffsetHeader, queue_id: int, text: str
    ) -> RemotingCommand:
        topic, group = header.topic, header.group
        config = self._topics.get(topic)
        if config is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups.groups:
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        # Ours: RocketMQ accepts queues without readers, and an offset that skips the next message.
        if queue_id >= config.read_queues:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queues}]",
            )
        offset = header.offset
        if offset is None or offset == -1:
            offset = self._offset_at(topic, queue_id, max(-1, header.timestamp))
        begin, end = (
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
        )
        if not begin <= offset <= end:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{begin}-{end}]",
            )
        self._events.offset_set(group, topic, queue_id, offset, text)
        self._events.offset_reset(group, topic, queue_id, offset)
        self._offsets.reset(group, topic, queue_id, offset)
        key = queue_key(self._broker_name, topic, queue_id)
        return json_answer(request, {"offsetTable": {key: offset}})

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        if time_ms == -1:
            return self._store.max_offset(topic, queue_id)
        # As 5.x: a group that is reset to a time gets what was stored then or later. 4.9 takes the message
        # stored next to it, and repeats the last one for a time behind all.
        return max(0, self._store.offset_by_time(topic, queue_id, time_ms, "LOWER"))

    def _push_reset(
        self,
        request: RemotingCommand,
        header: ResetOffsetHeader,
        table: dict[int, int],
        members: list[ClientChannel],
    ) -> None:
        body: Any
        if request.language == "CPP":
            body = [
                {
                    "brokerName": self._broker_name,
                    "offset": offset,
                    "queueId": queue_id,
                    "topic": header.topic,
                }
                for queue_id, offset in table.items()
            ]
        else:
            body = {
                queue_key(self._broker_name, header.topic, queue_id): offset
                for queue_id, offset in table.items()
            }
        # RocketMQ 4.9 never fills isForce of this request, whatever was asked.
        ext = ResetOffsetHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False
        ).ext()
        content = fastjson.dumps({"offsetTable": body})
        for member in members:
            try:
                member.connection.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, content)
            except RemotingError as error:
                log.warning(
                    "[reset-offset] reset offset exception. topic=%s, group=%s, error=%s",
                    header.topic,
                    header.group,
                    error,
                )
                continue
            log.info(
                "a member was sent its reset offsets topic=%s group=%s client=%s",
                header.topic,
                header.group,
                member.client_id,
            )

    # ------------------------------------------------------------ status of every member

    def get_consumer_status(self, request: RemotingCommand, connection: Connection) -> Any:
        header = GetConsumerStatusHeader.parse(request.ext)
        members = self._members(header.group)
        if not members:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        wanted = (header.client_addr or "").strip()
        for member in members:
            if member.version < Version.V3_0_7_SNAPSHOT:
                return _too_old(request, member)
        chosen = [member for member in members if not wanted or member.client_id == wanted]
        return self._collect_status(request, header, chosen)

    async def _collect_status(
        self,
        request: RemotingCommand,
        header: GetConsumerStatusHeader,
        members: list[ClientChannel],
    ) -> RemotingCommand:
        table: dict[str, Any] = {}

        async def ask(member: ClientChannel) -> None:
            asked = GetConsumerStatusHeader(topic=header.topic, group=header.group)
            code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            try:
                answer = await member.connection.ask(code, asked.ext(), b"", STATUS_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    data = fastjson.loads(answer.body, size_max=fastjson.REQUEST_SIZE_MAX)
                    table[member.client_id] = data.get("messageQueueTable")
            except (RemotingError, ProtocolError, AttributeError) as error:
                log.warning(
                    "[get-consumer-status] get consumer status exception. topic=%s, group=%s, "
                    "clientId=%s, error=%s",
                    header.topic,
                    header.group,
                    member.client_id,
                    error,
                )

        async with asyncio.TaskGroup() as tasks:
            for member in members:
                tasks.create_task(ask(member), name=f"status of {member.client_id}")
        return json_answer(request, {"consumerTable": table, "messageQueueTable": {}})

    # ------------------------------------------------------------ one member

    def get_running_info(self, request: RemotingCommand, connection: Connection) -> Any:
        header = GetConsumerRunningInfoHeader.parse(request.ext)
        return self._relay(request, header.consumer_group, header.client_id, connection)

    def consume_directly(self, request: RemotingCommand, connection: Connection) -> Any:
        header = ConsumeMessageDirectlyHeader.parse(request.ext)
        try:
            _, position = parse_offset_msg_id(header.msg_id or "")
        except MessageCodecError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        record = self._store.message_at(position)
        if record is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}"
            )
        assert request.ext is not None
        request.ext["brokerName"] = self._broker_name
        request.body = record
        return self._relay(request, header.consumer_group, header.client_id or "", connection)

    def _relay(
        self, request: RemotingCommand, group: str, client_id: str, connection: Connection
    ) -> Any:
        online = self._consumers.groups.get(group)
        member = None if online is None else online.find(client_id)
        if member is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if member.version < Version.V3_1_8_SNAPSHOT:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        if not connection.may_keep(request):
            return request.answer(
                ResponseCode.SYSTEM_BUSY,
                "too many requests wait for members to answer (keptRequestsMaxSize): ask again once some are "
                "answered",
            )
        request.body = bytes(request.body)
        return self._call(request, member, group)

    async def _call(
        self, request: RemotingCommand, member: ClientChannel, group: str
    ) -> RemotingCommand:
        ask = member.connection.ask
        try:
            answer = await ask(
                request.code, request.ext or {}, bytes(request.body), CALL_TIMEOUT_MS
            )
        except RequestTimeout as error:
            return request.answer(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{member.client_id}> Timeout: {error}",
            )
        except RemotingError as error:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{member.client_id}> Exception: {error}",
            )
        return request.answer(answer.code, answer.remark, answer.fields, answer.body)


def _too_old(request: RemotingCommand, member: ClientChannel) -> RemotingCommand:
    return request.answer(
        ResponseCode.SYSTEM_ERROR,
        f"the client does not support this feature. version={version_name(member.version)}",
    )
