"""RECALL_MESSAGE: cancel a message that is not due yet."""

from pocketmq.broker.acts.recall import RecallActs
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.durability import Durability
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.when_stored import Answer, when_kept
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import RecallMessageHeader, RecallMessageResponseHeader
from pocketmq.remoting.transport.connection import Connection, Handler


class RecallMessageProcessor:
    """The handler; every answer carries MSG_REGION."""

    def __init__(self, config: BrokerConfig, acts: RecallActs, durability: Durability) -> None:
        self._config = config
        self._acts = acts
        self._durability = durability

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, request: RemotingCommand, connection: Connection) -> Answer:
        """Ours: the response waits until the recall is safe (durability.py); RocketMQ answers at once."""
        header = RecallMessageHeader.parse(request.ext)
        ext = {"MSG_REGION": self._config.region_id}
        try:
            recalled = self._acts.recall(
                header.topic, header.recall_handle, header.producer_group, connection
            )
        except Refused as refused:
            return request.answer(refused.code, refused.remark, ext)
        ext |= RecallMessageResponseHeader(msg_id=recalled.unique_key).ext()
        answer = request.answer(ResponseCode.SUCCESS, None, ext)
        return when_kept(request, answer, self._durability, recalled.end)
