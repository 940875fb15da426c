"""CONSUMER_SEND_MSG_BACK: a message that could not be consumed comes again later, or is given up.

Source: SendMessageProcessor.asyncConsumerSendMsgBack, RocketMQ 4.9.7; wire.md 3.3.

1. The copy goes to %RETRY%group by way of the delay level (3 + times consumed, unless the client names
   one); after the group's maximum, or with a negative level, to %DLQ%group at once.
2. It keeps body (as stored), flag, properties and birth; reconsumeTimes is one more.
3. RETRY_TOPIC names the first topic, ORIGIN_MESSAGE_ID the first message; both stay through all retries.
"""

import logging
import random
from collections.abc import Callable

from pocketmq.broker.delivery_record import EventKind
from pocketmq.broker.parts import Messages, Node, Tables
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.flags import Perm
from pocketmq.remoting.headers import ConsumerSendMsgBackHeader
from pocketmq.remoting.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.remoting.names import FAQ, TOPIC_LENGTH_MAX, dlq_topic, retry_topic
from pocketmq.remoting.record import Record, read_record
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

_UNIT_SUB = 2


class SendBackProcessor:
    """Handler of the one code."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = node.config
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = messages.store
        self._stats = messages.stats
        self._put = messages.put
        self._deliveries = messages.deliveries
        self._random_below = random_below

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """See the head of the file."""
        header = ConsumerSendMsgBackHeader.parse(request.ext)
        group = self._groups.find(header.group)
        if group is None:
            return request.answer(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {FAQ}",
            )
        if not self._config.broker_permission & Perm.WRITE:
            return request.answer(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return request.answer(ResponseCode.SUCCESS)
        name = retry_topic(header.group)
        if len(name) > TOPIC_LENGTH_MAX:
            # It could be stored, in a layout that members of 4.9 cannot read.
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"the retry topic of the group has {len(name)} bytes, at most {TOPIC_LENGTH_MAX} are "
                "possible",
            )
        unit = _UNIT_SUB if header.unit_mode else 0
        topic = self._topics.create_internal(name, group.retry_queue_nums, sys_flag=unit)
        if not topic.writable:
            return request.answer(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        queue_id = self._random_below(group.retry_queue_nums)
        stored = self._store.message_at(header.offset)
        if stored is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        record = read_record(stored)
        properties = record.properties
        first_topic = get_property(properties, b"RETRY_TOPIC")
        if first_topic is None:
            first_topic = record.topic.encode()
            properties = add_property(properties, b"RETRY_TOPIC", first_topic)
        properties = _with(properties, b"WAIT", b"false")
        if get_property(properties, b"ORIGIN_MESSAGE_ID") is None:
            msg_id = offset_msg_id(record.store_host, record.position)
            properties = add_property(properties, b"ORIGIN_MESSAGE_ID", msg_id.encode())
        times_max = group.retry_max_times
        if request.version >= Version.V3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        level = header.delay_level
        if record.reconsume_times >= times_max or level < 0:
            name, queue_id = dlq_topic(header.group), 0
            self._topics.create_internal(name, 1)
            level = 0
        elif level == 0:
            level = 3 + record.reconsume_times
        properties = _with(properties, b"DELAY", str(level).encode())
        try:
            self._put.put_again(record, name, queue_id, properties, again=True)
        except StoreError as error:
            log.error("a message could not be sent back group=%s reason=%s", header.group, error)
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        self._record(request, connection, header.group, record, name, level)
        self._stats.count_sent_back(header.group, first_topic.decode("utf-8", "replace"))
        return request.answer(ResponseCode.SUCCESS)

    def _record(
        self,
        request: RemotingCommand,
        connection: Connection,
        group: str,
        record: Record,
        name: str,
        level: int,
    ) -> None:
        """Ours: the message's track says where it went, and why."""
        times = record.reconsume_times
        if level > 0:
            kind, why = EventKind.RETRY, f"to {name} by delay level {level}, time {times + 1}"
        elif ConsumerSendMsgBackHeader.parse(request.ext).delay_level < 0:
            kind, why = EventKind.DEAD, f"to {name}: the consumer gave it up (delay level -1)"
        else:
            kind, why = (
                EventKind.DEAD,
                f"to {name}: it failed {times + 1} times, which is the limit",
            )
        key = (group, record.topic, record.queue_id)
        offset = record.queue_offset
        self._deliveries.event(kind, key, offset, offset, f"{why}, sent back by {connection.peer}")


def _with(properties: bytes, name: bytes, value: bytes) -> bytes:
    return add_property(remove_property(properties, name), name, value)
