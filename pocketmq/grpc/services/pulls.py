"""PullMessage: reads a queue from an offset on, without claiming the messages.

Ours: the proxy 5.5.0 does not serve it. An answer is one status, then messages, then the next offset; the
same for ILLEGAL_OFFSET, MESSAGE_NOT_FOUND and OK. It waits like a receive.
"""

from functools import partial
from typing import Any

from pocketmq.broker.acts.pull import Pulled, Waits
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.encode import framed_message
from pocketmq.grpc.http2.call import GrpcCall, Method, framed
from pocketmq.grpc.messages import Status, classes
from pocketmq.grpc.schema import SERVICE, Code, FilterType
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import RequestContext, ms_of, parsed
from pocketmq.grpc.services.sessions import RECEIVE_COUNT
from pocketmq.grpc.unpacking import Unpacking
from pocketmq.model.record import Buffer, read_records
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader

_MAY_WAIT = int(PullSysFlag.SUSPEND)
_OWN_FILTER = int(PullSysFlag.SUBSCRIPTION)
_MOVED = Status(
    code=Code.ILLEGAL_OFFSET, message="the queue has no such offset: continue at the next one"
)
_NOTHING = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


class Pulls:
    """The service."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._answer_of = classes["PullMessageResponse"]

    def methods(self) -> dict[bytes, Method]:
        return {f"/{SERVICE}/PullMessage".encode(): Method(self.pull)}

    def pull(self, call: GrpcCall, data: bytes | None) -> None:
        """Answer a pull. Raises: GrpcError."""
        request = parsed(classes["PullMessageRequest"], data or b"")
        context = self._context
        try:
            context.check_role()
            context.access.check(call, access.consumes_queue(request))
            client = context.clients.of(call)
            if call.connection.is_backed_up:
                raise StatusFailure(
                    Code.TOO_MANY_REQUESTS,
                    "too many answers of this connection wait to be read: read them first",
                )
            self._pull(self._ask(request), client, call, first=True)
        except (StatusFailure, Refused) as error:
            failed = StatusFailure.by(error) if isinstance(error, Refused) else error
            self._answer(call, self._framed(status=failed.status))

    def _ask(self, request: Any) -> PullMessageHeader:
        """Return the request as the act's. Raises: StatusFailure."""
        context = self._context
        topic, by = context.topic_of(request.message_queue.topic), request.filter_expression
        context.known_topic(topic)
        if by.type == FilterType.SQL:
            # A classic pull gets every message with an expression that cannot be read.
            try:
                compile_expression(by.expression)
            except SelectorError as error:
                raise StatusFailure(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
        wait_ms = min(ms_of(request.long_polling_timeout), context.config.polling_ms_max)
        return PullMessageHeader(
            context.group_of(request.group),
            topic,
            request.message_queue.id,
            request.offset,
            min(max(request.batch_size, 1), RECEIVE_COUNT),
            _OWN_FILTER | (_MAY_WAIT if wait_ms > 0 else 0),
            0,
            wait_ms,
            0,
            by.expression or "*",
            "SQL92" if by.type == FilterType.SQL else "TAG",
        )

    def _pull(
        self, ask: PullMessageHeader, client: GrpcClient, call: GrpcCall, *, first: bool
    ) -> None:
        """Pull, or hold the pull. Raises: Refused."""
        acts = self._context.acts.pull
        found = acts.pull(ask, client, first=first)
        if isinstance(found, Waits):
            acts.wait(found, client, partial(self._again, ask, client, call))
        else:
            self._found(ask, found, client, call)

    def _again(self, ask: PullMessageHeader, client: GrpcClient, call: GrpcCall) -> None:
        """Retry a pull that has waited long enough, or for which there is something."""
        if call.gone or call.connection.closed:
            return
        try:
            self._pull(ask, client, call, first=False)
        except Refused as refused:
            self._answer(call, self._framed(status=StatusFailure.by(refused).status))

    def _found(
        self, ask: PullMessageHeader, found: Pulled, client: GrpcClient, call: GrpcCall
    ) -> None:
        moved = found.code == ResponseCode.PULL_OFFSET_MOVED
        status = OK if found.result.count else _MOVED if moved else _NOTHING
        parts: list[Buffer] = [self._framed(status=status)]
        following, unpacking = found.result.next_offset, Unpacking(client.language)
        for buffer in found.result.buffers:
            for record in read_records(buffer, check_crc=False):
                written = None if unpacking.is_cut else framed_message(record, unpacking, ask.topic)
                if written is None:
                    following = min(following, record.queue_offset)
                else:
                    parts += written
        self._answer(call, *parts, self._framed(next_offset=following))

    def _framed(self, **fields: Any) -> bytes:
        return framed(self._answer_of(**fields).SerializeToString())

    def _answer(self, call: GrpcCall, *parts: Buffer) -> None:
        call.write(b"".join(parts))
        call.finish()
