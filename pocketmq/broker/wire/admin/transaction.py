"""RESUME_CHECK_HALF_MESSAGE: check a half message again that was given up.

Source: AdminBrokerProcessor.resumeCheckHalfMessage, RocketMQ 4.9.7. The message of that id is appended to the
half queue again, with its check count reset; the transaction check finds it there. Ours: one that is checked
already, or was decided after it was given up, is refused: it would be committed twice.
"""

import logging

from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.transaction_check import HalfMessages
from pocketmq.model.message_codec import get_property, parse_offset_msg_id
from pocketmq.model.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from pocketmq.model.record import read_record
from pocketmq.remoting.admin_headers import ResumeCheckHalfMessageHeader
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.store import MessageStore, StoreError

log = logging.getLogger(__name__)

_HALF_TOPICS = (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
_FAILED = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class AdminTransactionProcessor:
    """One handler over the store."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, half: HalfMessages) -> None:
        self._store = store
        self._topics = topics
        self._half = half

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check}

    def resume_check(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = ResumeCheckHalfMessageHeader.parse(request.ext)
        try:
            _, position = parse_offset_msg_id(header.msg_id or "")
        except MessageCodecError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"{_FAILED} {error}")
        data = self._store.message_at(position)
        if data is None:
            return request.answer(
                ResponseCode.SYSTEM_ERROR,
                f"{_FAILED} There is no message at {position} of the commit log.",
            )
        record = read_record(data)
        # Ours: any other message would wait in the half queue for a decision that no producer can take.
        if record.topic not in _HALF_TOPICS or not get_property(record.properties, b"REAL_TOPIC"):
            return request.answer(
                ResponseCode.SYSTEM_ERROR, f"{_FAILED} The message is not transactional."
            )
        self._topics.create_internal(TRANS_HALF_TOPIC, 1)
        try:
            self._half.resume(record)
        except StoreError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"{_FAILED} {error}")
        log.info("half message put back id=%s by=%s", header.msg_id, connection.peer)
        return request.answer(ResponseCode.SUCCESS)
