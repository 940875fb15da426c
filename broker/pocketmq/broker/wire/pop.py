"""Pop: POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO."""

from functools import partial

from pocketmq.broker.acts.pop import PopActs
from pocketmq.broker.pop.taking import Popped
from pocketmq.broker.refused import Refused
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.connection import Connection, Handler, Reply
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    NotificationHeader,
    NotificationResponseHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PollingInfoResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)


class PopMessageProcessor:
    """Handlers of the four codes."""

    def __init__(self, acts: PopActs, clock: Clock) -> None:
        self._acts = acts
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def _again(self, request: RemotingCommand, connection: Connection) -> None:
        """Handle a request that is done waiting: answer it, or hold it again."""
        handler = self.pop if request.code == RequestCode.POP_MESSAGE else self.notify
        reply = handler(request, connection)
        if reply is not None:
            connection.send(reply)

    def pop(self, request: RemotingCommand, connection: Connection) -> Reply:
        header = PopMessageHeader.parse(self._with_born_time(request))
        again = partial(self._again, request, connection)
        try:
            found = self._acts.pop(header, connection, again)
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
        header = NotificationHeader.parse(self._with_born_time(request))
        again = partial(self._again, request, connection)
        try:
            found = self._acts.notify(header, connection, again)
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

    def _with_born_time(self, request: RemotingCommand) -> dict[str, str]:
        """Return the fields; a missing or future bornTime becomes now, for reruns too. Raises:
        HeaderError.
        """
        ext = request.ext or {}
        now = self._clock.now_ms()
        try:
            born_ms = int(ext.get("bornTime", "0"))
        except ValueError as error:
            raise HeaderError(f"bornTime is not a number: {ext['bornTime'][:50]!r}") from error
        if not 0 < born_ms <= now:
            request.ext = ext = {**ext, "bornTime": str(now)}
        return ext


# The fields of an answer without messages; pops have them in every answer.
_NOTHING = PopMessageResponseHeader(0, 0, 0, 0)


def _reply(request: RemotingCommand, found: Popped, ext: PopMessageResponseHeader) -> Reply:
    if not found.count:
        return request.answer(found.code, "NO_MESSAGE_IN_QUEUE", ext.ext())
    head = encode_head(request.answer(ResponseCode.SUCCESS, "FOUND", ext.ext()), found.size)
    return [head, *found.buffers]
