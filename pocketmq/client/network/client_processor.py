"""ClientProcessor: answers brokers' requests to this client. Source: ClientRemotingProcessor, 4.9.7.

39  CHECK_TRANSACTION_STATE          how did this transaction end?        no answer; END_TRANSACTION later
40  NOTIFY_CONSUMER_IDS_CHANGED      the group's members changed          no answer; rebalance
220 RESET_CONSUMER_CLIENT_OFFSET     continue from these offsets          no answer
221 GET_CONSUMER_STATUS_FROM_CLIENT  report your offsets                  the table
307 GET_CONSUMER_RUNNING_INFO        report your state                    ConsumerRunningInfo
309 CONSUME_MESSAGE_DIRECTLY         consume this message now             its result
326 PUSH_REPLY_MESSAGE_TO_CLIENT     the reply to one of your requests    an empty answer
900006 NOTIFY_TOPIC_KNOWN            a topic that you asked for is there  no answer; its route is queried
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pocketmq.client.inner import InnerConsumer, SharedInstance
from pocketmq.model.message import Message, MessageExt, MessageQueue, Property
from pocketmq.model.message_codec import decompress, properties_to_dict, to_message
from pocketmq.model.queue_json import message_queue, queue_key
from pocketmq.model.record import read_record
from pocketmq.remoting import fastjson, headers
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.java_number import number
from pocketmq.remoting.requests import (
    AnsweringServer,
    NotifyTopicKnownHeader,
    PocketRequestCode,
    complete,
)
from pocketmq.remoting.transport.connection import Connection, Handler

log = logging.getLogger(__name__)


class ClientProcessor:
    """The handlers of one client instance, and the requests that wait for a reply."""

    def __init__(self, instance: SharedInstance) -> None:
        self._instance = instance
        self.replies: dict[str, asyncio.Future[Message]] = {}

    def handlers(self) -> dict[int, Handler]:
        handlers: dict[int, Handler] = {
            RequestCode.CHECK_TRANSACTION_STATE: self.check_transaction_state,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.notify_consumer_ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.get_consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.receive_reply,
            PocketRequestCode.NOTIFY_TOPIC_KNOWN: self.notify_topic_known,
        }
        return complete(AnsweringServer.CLIENT, handlers)

    def check_transaction_state(self, request: RemotingCommand, connection: Connection) -> None:
        message = to_message(read_record(request.body))
        group = message.properties.get(Property.PGROUP.value, "")
        producer = self._instance.producers.get(group)
        if producer is None:
            log.warning("transaction check for an unknown producer group=%r", group)
            return
        producer.start_check(connection.peer, message, dict(request.ext or {}))

    def notify_consumer_ids_changed(self, request: RemotingCommand, connection: Connection) -> None:
        log.info(
            "consumer ids changed, rebalance now group=%r broker=%s",
            (request.ext or {}).get("consumerGroup"),
            connection.peer,
        )
        self._instance.rebalance_now()

    async def notify_topic_known(self, request: RemotingCommand, _: Connection) -> None:
        topic = NotifyTopicKnownHeader.parse(request.ext).topic
        if topic not in self._instance.routes:
            await self._instance.look_for([topic])

    async def reset_offset(self, request: RemotingCommand, _: Connection) -> RemotingCommand | None:
        header = headers.ResetOffsetHeader.parse(request.ext)
        consumer = self._instance.consumers.get(header.group)
        if consumer is None:
            log.warning("offset reset for an unknown group=%r", header.group)
            return None
        await consumer.reset_offsets(header.topic, offset_table(request.body))
        return None

    def get_consumer_status(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        header = headers.GetConsumerStatusHeader.parse(request.ext)
        consumer = self._instance.consumers.get(header.group)
        table = {} if consumer is None else consumer.consumer_status(header.topic)
        body = {"messageQueueTable": {queue_key(queue): offset for queue, offset in table.items()}}
        return request.answer(ResponseCode.SUCCESS, None, {}, fastjson.dumps(body))

    def get_consumer_running_info(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        header = headers.GetConsumerRunningInfoHeader.parse(request.ext)
        consumer = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return self._no_such_group(request, header.consumer_group)
        info = consumer.running_info(stacks=bool(header.jstack_enable))
        return request.answer(ResponseCode.SUCCESS, None, {}, fastjson.dumps(info))

    async def consume_message_directly(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand:
        header = headers.ConsumeMessageDirectlyHeader.parse(request.ext)
        consumer: InnerConsumer | None = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return self._no_such_group(request, header.consumer_group)
        message = to_message(read_record(request.body), header.broker_name or "")
        result = await consumer.consume_directly(message, header.broker_name)
        return request.answer(ResponseCode.SUCCESS, None, {}, fastjson.dumps(result))

    def _no_such_group(self, request: RemotingCommand, group: str) -> RemotingCommand:
        return request.answer(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer Group <{group}> not exist in this consumer",
            {},
        )

    def receive_reply(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        reply = reply_message(request, self._instance.clock.now_ms())
        correlation_id = reply.properties.get(Property.CORRELATION_ID.value, "")
        waiting = self.replies.pop(correlation_id, None)
        if waiting is None or waiting.done():
            log.warning("ignored a reply that nothing waits for correlation_id=%r", correlation_id)
        else:
            waiting.set_result(reply)
        return request.answer(ResponseCode.SUCCESS, None, {})


def reply_message(request: RemotingCommand, now_ms: int) -> MessageExt:
    """Return the reply that PUSH_REPLY_MESSAGE_TO_CLIENT carries. Raises: HeaderError, MessageCodecError."""
    header = headers.PushReplyMessageHeader.parse(request.ext)
    body = bytes(request.body)
    if header.sys_flag & MessageSysFlag.COMPRESSED:
        body = decompress(body, header.sys_flag)
    properties = properties_to_dict(header.properties or "")
    properties[Property.ARRIVE_TIME.value] = str(now_ms)
    return MessageExt(
        topic=header.topic,
        body=body,
        flag=header.flag,
        properties=properties,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag & ~MessageSysFlag.COMPRESSED,
        born_timestamp=header.born_timestamp,
        born_host=header.born_host.lstrip("/"),
        store_timestamp=header.store_timestamp,
        store_host=header.store_host.lstrip("/"),
        reconsume_times=header.reconsume_times or 0,
    )


def offset_table(body: bytes | bytearray | memoryview) -> dict[MessageQueue, int]:
    """Parse `offsetTable` of a body: an object keyed by queues, or the list form for C++ clients."""
    data = fastjson.loads(body) if body else {}
    table: Any = data.get("offsetTable") if isinstance(data, Mapping) else None
    found: dict[MessageQueue, int] = {}
    if isinstance(table, Mapping):
        for key, offset in table.items():
            if isinstance(key, str):
                key = fastjson.loads(key)
            found[message_queue(key)] = number(offset)
    elif isinstance(table, list):
        for each in table:
            found[message_queue(each)] = number(each["offset"])
    return found
