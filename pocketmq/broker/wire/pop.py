"""Pop: POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO."""

from collections.abc import Callable
from functools import partial

from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.pop.taking import Popped
from pocketmq.broker.refused import Refused
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.headers import (
    NotificationHeader,
    NotificationResponseHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PollingInfoResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Reply


class PopMessageProcessor:
    """Handlers of the four codes."""

    def __init__(self, acts: PopActs) -> None:
        self._acts = acts

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = PopMessageHeader.parse(_with_born_time(request.ext))
        _forget(request)
        return self._pop(request, header, self._acts.waits_until_ms(header), connection)

    def _pop(
        self,
        request: RemotingCommand,
        header: PopMessageHeader,
        until_ms: int,
        connection: Connection,
    ) -> Reply:
        again = partial(self._pop, request, header, until_ms, connection)
        try:
            found = self._acts.pop(header, connection, until_ms, partial(_send, connection, again))
        except Refused as refused:
            return request.answer(refused.code, refused.remark, _NOTHING.ext())
        if found is None:
            return None
        ext = PopMessageResponseHeader(
            pop_time=found.pop_ms,
            invisible_time=header.invisible_time,
            revive_qid=found.revive_queue,
            rest_num=found.rest,
            start_offset_info=";".join(found.start_info),
            msg_offset_info=";".join(found.offset_info),
            order_count_info=";".join(found.order_info) if header.order else None,
        )
        return _reply(request, found, ext)

    def peek(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = PeekMessageHeader.parse(request.ext)
        try:
            found = self._acts.peek(header, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark, _NOTHING.ext())
        if not found.count:
            found.code = ResponseCode.PULL_NOT_FOUND
        return _reply(request, found, PopMessageResponseHeader(0, 0, 0, found.rest))

    def notify(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = NotificationHeader.parse(_with_born_time(request.ext))
        _forget(request)
        return self._notify(request, header, self._acts.waits_until_ms(header), connection)

    def _notify(
        self,
        request: RemotingCommand,
        header: NotificationHeader,
        until_ms: int,
        connection: Connection,
    ) -> Reply:
        again = partial(self._notify, request, header, until_ms, connection)
        try:
            found = self._acts.notify(
                header, connection, until_ms, partial(_send, connection, again)
            )
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        if found is None:
            return None
        ext = NotificationResponseHeader(has_msg=found.has_message, polling_full=found.full).ext()
        return request.answer(ResponseCode.SUCCESS, None, ext)

    def polling_info(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = PollingInfoHeader.parse(request.ext)
        try:
            count = self._acts.waiting(header, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        ext = PollingInfoResponseHeader(polling_num=count).ext()
        return request.answer(ResponseCode.SUCCESS, None, ext)


def _send(connection: Connection, again: Callable[[], Reply]) -> None:
    """Handle a request that is done waiting: answer it, or hold it again."""
    reply = again()
    if reply is not None:
        connection.send(reply)


def _forget(request: RemotingCommand) -> None:
    """Drop what only the parser needs: the request may be held."""
    request.ext, request.body = None, b""


def _with_born_time(ext: dict[str, str] | None) -> dict[str, str]:
    """Return the fields; a client may leave out bornTime, as with RocketMQ."""
    return {"bornTime": "0", **(ext or {})}


# The fields of an answer without messages; pops have them in every answer.
_NOTHING = PopMessageResponseHeader(0, 0, 0, 0)


def _reply(request: RemotingCommand, found: Popped, ext: PopMessageResponseHeader) -> Reply:
    if not found.count:
        return request.answer(found.code, "NO_MESSAGE_IN_QUEUE", ext.ext())
    head = encode_head(request.answer(ResponseCode.SUCCESS, "FOUND", ext.ext()), found.size)
    return [head, *found.buffers]
