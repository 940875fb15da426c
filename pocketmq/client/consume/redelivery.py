"""Redelivery: redelivery of failed messages, by the broker or by a new send to the retry topic.

Source: DefaultMQPushConsumerImpl.sendMessageBack, RocketMQ 4.9.8.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pocketmq.client.network.namespace import with_namespace
from pocketmq.client.options import PushConsumerOptions, SendOptions
from pocketmq.client.send.engine import SendEngine
from pocketmq.model.message import Message, MessageExt, Property
from pocketmq.model.names import INNER_PRODUCER_GROUP, retry_topic
from pocketmq.remoting.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.network.instance import MQClientInstance

log = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_MS = 5_000
RECONSUME_TIMES_MAX = 16
FIRST_RETRY_LEVEL = 3


class Redelivery:
    """Owner: a push consumer's member."""

    def __init__(self, options: PushConsumerOptions, instance: "MQClientInstance") -> None:
        self._options = options
        self._instance = instance
        self._group = options.inner_group
        self._retry_topic = retry_topic(self._group)
        self._sender = SendEngine(instance, INNER_PRODUCER_GROUP, SendOptions())

    async def send_back(self, message: MessageExt, delay_level: int, broker_name: str) -> None:
        """Have the broker redeliver the message; if that fails, send it to the retry topic ourselves.

        Raises: PocketMQError if neither worked.
        """
        stored = self._stored_name(message)
        try:
            address = await self._instance.master_address(stored.topic, broker_name)
            await self._instance.api.send_message_back(
                address,
                stored,
                self._group,
                delay_level,
                self._reconsume_times_max,
                SEND_BACK_TIMEOUT_MS,
            )
        except PocketMQError as error:
            log.warning(
                "the broker did not take the message back, so it was sent to the retry topic message=%s "
                "reason=%r",
                message.msg_id,
                str(error),
            )
            retry = self.retry_message(
                message, message.reconsume_times + 1, self._reconsume_times_max
            )
            await self._sender.send(self._sender.outgoing(retry))

    def _stored_name(self, message: MessageExt) -> MessageExt:
        topic = with_namespace(self._options.namespace, message.topic)
        return message if topic == message.topic else replace(message, topic=topic)

    @property
    def _reconsume_times_max(self) -> int:
        configured = self._options.max_reconsume_times
        return RECONSUME_TIMES_MAX if configured == -1 else configured

    def retry_message(
        self, message: MessageExt, reconsume_times: int, reconsume_times_max: int
    ) -> Message:
        """Return the message as this client itself sends it to the retry topic."""
        properties = dict(message.properties)
        properties.pop(Property.TRAN_MSG.value, None)
        properties.pop(Property.CONSUME_START_TIME.value, None)
        properties.setdefault(Property.ORIGIN_MESSAGE_ID.value, message.offset_msg_id)
        properties[Property.RETRY_TOPIC.value] = self._stored_name(message).topic
        properties[Property.RECONSUME_TIME.value] = str(reconsume_times)
        properties[Property.MAX_RECONSUME_TIMES.value] = str(reconsume_times_max)
        properties[Property.DELAY.value] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        return Message(self._retry_topic, message.body, flag=message.flag, properties=properties)

    async def used_up(self, message: MessageExt) -> None:
        """Send an orderly message whose retries are used up; the broker dead-letters it."""
        limit = self._options.max_reconsume_times
        retry = self.retry_message(message, message.reconsume_times, limit)
        await self._sender.send(self._sender.outgoing(retry))
