"""RECALL_MESSAGE: a message that is not due yet is cancelled."""

from pocketmq.broker.acts.recall import RecallActs
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.refused import Refused
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.headers import RecallMessageHeader, RecallMessageResponseHeader


class RecallMessageProcessor:
    """The handler; every answer says MSG_REGION."""

    def __init__(self, config: BrokerConfig, acts: RecallActs) -> None:
        self._config = config
        self._acts = acts

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = RecallMessageHeader.parse(request.ext)
        ext = {"MSG_REGION": self._config.region_id}
        try:
            key = self._acts.recall(
                header.topic, header.recall_handle, header.producer_group, connection
            )
        except Refused as refused:
            return request.answer(refused.code, refused.remark, ext)
        ext |= RecallMessageResponseHeader(msg_id=key).ext()
        return request.answer(ResponseCode.SUCCESS, None, ext)
