"""Replies of request-reply: SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2. Source: ReplyMessageProcessor,
RocketMQ 4.9.7; wire.md 2.5.

The reply is pushed to the connection of the producer that REPLY_TO_CLIENT names, which has 10 s to take
it, and then stored (storeReplyMessageEnable). The one who replies is answered by what became of the push.
"""

import logging
from collections.abc import Coroutine
from typing import Any

from pocketmq.broker.acts.send import SendActs, SendAsk
from pocketmq.broker.message_put import HOST_V6_FLAGS, MessagePut
from pocketmq.broker.parts import Node
from pocketmq.broker.producer_manager import ProducerManager
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.send import SendMessageProcessor, parse_send
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    PushReplyMessageHeader,
)
from pocketmq.remoting.message_codec import (
    add_property,
    get_property,
    offset_msg_id,
    remove_property,
    unpack_host,
)
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000


class ReplyMessageProcessor:
    """Handlers of the two codes."""

    def __init__(
        self,
        node: Node,
        acts: SendActs,
        send: SendMessageProcessor,
        producers: ProducerManager,
        put: MessagePut,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._store_host = node.store_host
        self._acts = acts
        self._send = send
        self._producers = producers
        self._put = put

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(
        self, request: RemotingCommand, connection: Connection
    ) -> Coroutine[Any, Any, RemotingCommand]:
        """Push, store, answer; the push is waited for beside the connection's other requests."""
        return self._reply(request, connection)

    async def _reply(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = parse_send(request)
        try:
            topic = self._acts.check(header, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, dict(self._send.answer_ext))
        queue_id = header.queue_id if header.queue_id >= 0 else topic.write_queues - 1
        failure = await self._push(request, connection, header)
        ext = {**self._send.answer_ext}
        if failure is None:
            # A client decodes msgId even when nothing is stored.
            ext |= {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            ext |= self._store(request, connection, header, queue_id)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return request.answer(code, failure, ext)

    async def _push(
        self, request: RemotingCommand, connection: Connection, header: SendAsk
    ) -> str | None:
        """PUSH_REPLY_MESSAGE_TO_CLIENT; None when the client took it, else RocketMQ's remark."""
        properties = (header.properties or "").encode()
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
        properties = add_property(
            remove_property(properties, b"PUSH_REPLY_TIME"),
            b"PUSH_REPLY_TIME",
            str(now_ms).encode(),
        )
        push = PushReplyMessageHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=unpack_host(connection.peer_host),
            store_host=unpack_host(self._store_host),
            store_timestamp=now_ms,
            properties=properties.decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            answer = await asker.ask(code, push.ext(), bytes(request.body), PUSH_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("push reply message to <%s> fail. %s", client_id, error)
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning(
                "push reply message to <%s> return fail, response remark: %s",
                client_id,
                answer.remark,
            )
            return f"push reply message to {client_id}fail."
        return None

    def _store(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: SendAsk,
        queue_id: int,
    ) -> dict[str, str]:
        """The fields of the answer that say where the reply was stored; none when it was not."""
        try:
            put = self._put.put(
                header.topic,
                queue_id,
                request.body,
                (header.properties or "").encode(),
                born_host=connection.peer_host,
                flag=header.flag,
                sys_flag=header.sys_flag & ~HOST_V6_FLAGS,
                born_ms=header.born_timestamp,
                reconsume_times=header.reconsume_times or 0,
            ).appended
        except StoreError as error:
            log.warning("process reply message, not stored reason=%s", error)
            return {}
        return {
            "msgId": offset_msg_id(self._store_host, put.position),
            "queueId": str(queue_id),
            "queueOffset": str(put.queue_offset),
        }
