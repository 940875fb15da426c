"""Replies of request-reply. Source: ReplyMessageProcessor, RocketMQ 4.9.7.

The reply is pushed to the producer that REPLY_TO_CLIENT names, which has 10 s to take it, and then stored
(storeReplyMessageEnable). The response to the replying client carries the outcome of the push.
"""

import logging
from typing import NamedTuple

from pocketmq.broker.acts.send import SendActs, SendAsk
from pocketmq.broker.groups.producer_manager import ProducerManager
from pocketmq.broker.internal_append import BROKERS_FLAGS, InternalAppend
from pocketmq.broker.node import Node
from pocketmq.model.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import PushReplyMessageHeader
from pocketmq.remoting.hosts import unpack_host
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000


class Replied(NamedTuple):
    """failure: why the push failed, in RocketMQ's words. msg_id: None when the reply was not stored."""

    failure: str | None
    queue_id: int
    msg_id: str | None = None
    queue_offset: int = 0


class ReplyActs:
    """See the head of the file."""

    def __init__(
        self, node: Node, sends: SendActs, producers: ProducerManager, put: InternalAppend
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._store_host = node.store_host
        self._sends = sends
        self._producers = producers
        self._put = put

    async def reply(self, ask: SendAsk, body: bytes, peer: Peer) -> Replied:
        """Push and store a reply. Raises: Refused."""
        topic = self._sends.check(ask, peer)
        queue_id = ask.queue_id if ask.queue_id >= 0 else topic.write_queues - 1
        replied = Replied(await self._push(ask, body, peer), queue_id)
        return self._stored(replied, ask, body, peer)

    async def _push(self, ask: SendAsk, body: bytes, peer: Peer) -> str | None:
        """Send PUSH_REPLY_MESSAGE_TO_CLIENT; None if the client took it, else RocketMQ's remark."""
        properties = (ask.properties or "").encode()
        client = get_property(properties, b"REPLY_TO_CLIENT")
        if client is None:
            log.warning("REPLY_TO_CLIENT is null, can not reply message")
            return "reply message properties[REPLY_TO_CLIENT] is null"
        client_id = client.decode("utf-8", "replace")
        asker = self._producers.find(client_id)
        if asker is None or not asker.writable:
            remark = f"push reply message fail, channel of <{client_id}> not found."
            log.warning("%s", remark)
            return remark
        now_ms = self._clock.now_ms()
        properties = remove_property(properties, b"PUSH_REPLY_TIME")
        properties = add_property(properties, b"PUSH_REPLY_TIME", str(now_ms).encode())
        push = PushReplyMessageHeader(
            producer_group=ask.producer_group,
            topic=ask.topic,
            default_topic=ask.default_topic,
            default_topic_queue_nums=ask.default_topic_queue_nums,
            queue_id=ask.queue_id,
            sys_flag=ask.sys_flag,
            born_timestamp=ask.born_timestamp,
            flag=ask.flag,
            born_host=unpack_host(peer.host),
            store_host=unpack_host(self._store_host),
            store_timestamp=now_ms,
            properties=properties.decode(),
            reconsume_times=ask.reconsume_times,
            unit_mode=ask.unit_mode,
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            answer = await asker.ask(code, push.ext(), body, PUSH_TIMEOUT_MS)
        except RemotingError as error:
            why: object = error
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            why = answer.remark
        log.warning("cannot push a reply client=%s reason=%s", client_id, why)
        return f"push reply message to {client_id}fail."

    def _stored(self, replied: Replied, ask: SendAsk, body: bytes, peer: Peer) -> Replied:
        """Store the reply and add its place; return `replied` unchanged if it was not stored."""
        if not self._config.store_reply_message_enable:
            return replied
        try:
            put = self._put.put(
                ask.topic,
                replied.queue_id,
                body,
                remove_property((ask.properties or "").encode(), b"POP_CK"),
                born_host=peer.host,
                flag=ask.flag,
                sys_flag=ask.sys_flag & ~BROKERS_FLAGS,
                born_ms=ask.born_timestamp,
                reconsume_times=ask.reconsume_times or 0,
            ).appended
        except StoreError as error:
            log.warning("cannot store a reply topic=%s reason=%s", ask.topic, error)
            return replied
        msg_id = offset_msg_id(self._store_host, put.position)
        return replied._replace(msg_id=msg_id, queue_offset=put.queue_offset)
