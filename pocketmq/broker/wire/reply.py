"""SEND_REPLY_MESSAGE, SEND_REPLY_MESSAGE_V2; their behaviour: acts/reply.py."""

from pocketmq.broker.acts.reply import ReplyActs
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.sends.plain_send import parse_send
from pocketmq.broker.wire.sends.send import SendMessageProcessor
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Later

_TOO_MANY = (
    "too many replies wait for their askers to take them (keptRequestsMaxSize): send this one again once "
    "some are answered"
)


class ReplyMessageProcessor:
    """A coroutine: the connection's other requests are served during the push."""

    def __init__(self, acts: ReplyActs, send: SendMessageProcessor) -> None:
        self._acts = acts
        self._send = send

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(
            (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply
        )

    def reply(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | Later:
        ext = {**self._send.parts.answer_ext}
        if not connection.may_keep(request):
            return request.answer(ResponseCode.SYSTEM_BUSY, _TOO_MANY, ext)
        return self._replied(request, connection, ext)

    async def _replied(
        self, request: RemotingCommand, connection: Connection, ext: dict[str, str]
    ) -> RemotingCommand:
        try:
            done = await self._acts.reply(parse_send(request), bytes(request.body), connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, ext)
        if done.failure is None or done.msg_id is not None:
            # A client decodes msgId even when nothing is stored.
            ext["msgId"] = done.msg_id or "0"
            ext["queueId"] = str(done.queue_id)
            ext["queueOffset"] = str(done.queue_offset)
        code = ResponseCode.SUCCESS if done.failure is None else ResponseCode.SYSTEM_ERROR
        return request.answer(code, done.failure, ext)
