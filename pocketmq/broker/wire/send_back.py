"""CONSUMER_SEND_MSG_BACK: schedule a redelivery of a message, or dead-letter it."""

from collections.abc import Coroutine
from typing import Any

from pocketmq.broker.acts.send_back import SendBackActs, SentBack
from pocketmq.broker.refused import Refused
from pocketmq.remoting.codes import RequestCode, ResponseCode, Version
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers import ConsumerSendMsgBackHeader
from pocketmq.remoting.transport.connection import Connection, Handler


class SendBackProcessor:
    """Handler of the one code."""

    def __init__(self, acts: SendBackActs) -> None:
        self._acts = acts

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        header = ConsumerSendMsgBackHeader.parse(request.ext)
        # Older clients send the field, and mean nothing by it.
        times_max = header.max_reconsume_times if request.version >= Version.V3_4_9 else None
        sent = SentBack(
            header.group,
            header.offset,
            header.delay_level,
            times_max,
            bool(header.unit_mode),
        )
        try:
            self._acts.send_back(sent, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return (
            self._when_kept(request) if self._acts.waits else request.answer(ResponseCode.SUCCESS)
        )

    async def _when_kept(self, request: RemotingCommand) -> RemotingCommand:
        try:
            await self._acts.kept()
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return request.answer(ResponseCode.SUCCESS)
