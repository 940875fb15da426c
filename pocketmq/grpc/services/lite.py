"""Lite topics: SyncLiteSubscription, and what their consumers receive and acknowledge. See lite.md 5 and 6.

Source: ClientActivity, ReceiveMessageActivity, RocketMQ 5.5.0.

1. A consumer of lite topics is one whose group is bound to a topic of them, or who says so in its settings.
2. A handle does not name the lite topic: the request does, in `lite_topic`. Its words are RocketMQ's.
3. Messages that could not be sent to a lost client are redelivered at once, without counting an attempt.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from pocketmq.broker.acts.lite import From, HandedOut, LiteAction, LiteActs, LiteAsk
from pocketmq.broker.lite.flight import Lane
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.encode import framed_message
from pocketmq.grpc.http2.call import GrpcCall, Method, framed
from pocketmq.grpc.mapping import checked_name, set_ms
from pocketmq.grpc.messages import ReceiveMessageResponse, Status, classes
from pocketmq.grpc.receipt_handle import ReceiptHandle, handed_out, words_of
from pocketmq.grpc.schema import LITE, Code, OffsetPolicy
from pocketmq.grpc.services import access
from pocketmq.grpc.services.context import RequestContext, ms_of
from pocketmq.grpc.unpacking import Unpacking
from pocketmq.model.pop_receipt import NORMAL, ORDER_REVIVE_QUEUE, Receipt
from pocketmq.model.record import Buffer

log = logging.getLogger(__name__)

_NAMES_MAX = 5_000
_POLICIES = {
    OffsetPolicy.LAST: From.LAST,
    OffsetPolicy.MIN: From.MIN,
    OffsetPolicy.MAX: From.MAX,
}
_FOUND = framed(ReceiveMessageResponse(status=OK).SerializeToString())
_NOTHING = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


class Receive(NamedTuple):
    """A receive of a consumer of lite topics. until_ms: until when it may be held, monotonic."""

    ask: LiteAsk
    count_max: int
    invisible_ms: int
    until_ms: int
    renew: bool


class LiteServices:
    """The service, and those of `Receives` for lite topics."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._now_ms = context.parts.node.clock.now_ms

    def methods(self) -> dict[bytes, Method]:
        return self._context.method("SyncLiteSubscription", self.sync, access.consumes)

    @property
    def _acts(self) -> LiteActs:
        return self._context.acts.lite

    def concerns(self, group: str, client: GrpcClient) -> bool:
        """Apply invariant 1."""
        is_lite = client.settings is not None and client.settings.client_type in LITE
        return is_lite or self._acts.concerns(group)

    # ------------------------------------------------------------ subscribe

    def sync(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        ask = LiteAsk(
            client.client_id, context.group_of(request.group), context.topic_of(request.topic)
        )
        if len(request.lite_topic_set) > _NAMES_MAX:
            raise StatusFailure(
                Code.BAD_REQUEST,
                f"one request names at most {_NAMES_MAX} lite topics, not {len(request.lite_topic_set)}",
            )
        for name in request.lite_topic_set:
            checked_name(name)
        begin = From.LAST, 0
        if request.HasField("offset_option"):
            begin = _begin(request.offset_option)
        try:
            self._acts.sync(ask, LiteAction(request.action), request.lite_topic_set, client, begin)
        except ValueError:
            raise StatusFailure(
                Code.BAD_REQUEST, f"unknown LiteSubscriptionAction: {request.action}"
            ) from None
        return classes["SyncLiteSubscriptionResponse"](status=OK)

    # ------------------------------------------------------------ receive

    def receive(self, receive: Receive, client: GrpcClient, call: GrpcCall) -> None:
        """Answer a receive, now or later. Raises: Refused."""
        if call.gone or call.connection.closed:
            return
        again = partial(self._again, receive, client, call)
        found = self._acts.receive(
            receive.ask,
            receive.count_max,
            receive.invisible_ms,
            client,
            receive.until_ms,
            again,
            holds=receive.renew,
        )
        if found is None:
            call.wait(_Waiting(self._acts, client, again))
            return
        call.wait(None)
        if found:
            self._answer(receive, found, client, call)
        else:
            self._answer_nothing(call, _NOTHING)

    def _again(self, receive: Receive, client: GrpcClient, call: GrpcCall) -> None:
        try:
            self.receive(receive, client, call)
        except Refused as refused:
            self._answer_nothing(call, StatusFailure.by(refused).status)

    def _answer_nothing(self, call: GrpcCall, status: Any) -> None:
        answer = framed(ReceiveMessageResponse(status=status).SerializeToString())
        call.answer(answer + self._time())

    def _time(self) -> bytes:
        answer = ReceiveMessageResponse()
        set_ms(answer.delivery_timestamp, self._now_ms())
        return framed(answer.SerializeToString())

    def _answer(
        self, receive: Receive, found: list[HandedOut], client: GrpcClient, call: GrpcCall
    ) -> None:
        parts: list[Buffer] = [_FOUND]
        size, ends = len(_FOUND), []
        unpacking = Unpacking(client.language)
        later: list[HandedOut] = []
        for each in found:
            written = None
            if not unpacking.is_cut:
                handle = str(self._handle(each, receive.invisible_ms))
                topic = receive.ask.topic
                try:
                    written = framed_message(each.record, unpacking, topic, handle, each.attempt)
                except Exception:
                    # A bug, but this message's alone: it is redelivered until it is a dead letter.
                    position = each.record.position
                    log.exception("a message cannot be put into an answer position=%d", position)
                    continue
            if written is None:
                later.append(each)
                continue
            parts += written
            size += len(written[0]) + len(written[1])
            ends.append((size, each))
        self.give_back(receive.ask, later)
        parts.append(self._time())
        size += len(parts[-1])
        call.answer(b"".join(parts), _Sent(self, receive.ask, ends, size))

    def _handle(self, each: HandedOut, invisible_ms: int) -> ReceiptHandle:
        """Apply invariant 2."""
        broker = self._context.broker_name
        receipt = Receipt(0, each.pop_ms, invisible_ms, ORDER_REVIVE_QUEUE, NORMAL, broker, 0)
        return ReceiptHandle(words_of(receipt), each.offset, each.record.position)

    def give_back(self, ask: LiteAsk, messages: Iterable[HandedOut]) -> None:
        """Apply invariant 3."""
        for each in messages:
            try:
                lane = self._acts.lane(ask, each.name)
            except Refused:
                continue
            self._acts.postpone(lane, each.offset, each.pop_ms, 0, untried=True)

    # ------------------------------------------------------------ receipts

    def _out(
        self, request: Any, name: str, handle_text: str, client: GrpcClient
    ) -> tuple[Lane, ReceiptHandle, Receipt]:
        """Return what a request is about. Raises: StatusFailure, Refused."""
        context = self._context
        group, topic = context.group_of(request.group), context.topic_of(request.topic)
        handle = ReceiptHandle.parse(handle_text)
        receipt = handed_out(group, topic, handle.words).receipt
        return self._acts.lane(LiteAsk(client.client_id, group, topic), name), handle, receipt

    def ack(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        """Acknowledge messages, each by itself."""
        answer = classes["AckMessageResponse"]()
        for entry in request.entries:
            status = OK
            try:
                lane, handle, receipt = self._out(
                    request, entry.lite_topic, entry.receipt_handle, client
                )
                if not self._acts.ack(lane, handle.offset, receipt.pop_ms):
                    status = expired().status
            except Refused as refused:
                status = StatusFailure.by(refused).status
            except StatusFailure as failure:
                status = failure.status
            answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
            )
        if len({entry.status.code for entry in answer.entries}) == 1:
            answer.status.CopyFrom(answer.entries[0].status)
        else:
            answer.status.code = Code.MULTIPLE_RESULTS
        return answer

    def change(self, request: Any, client: GrpcClient) -> Any:
        """Change an invisible time that was checked. Raises: StatusFailure, Refused."""
        lane, handle, receipt = self._out(
            request, request.lite_topic, request.receipt_handle, client
        )
        ms = ms_of(request.invisible_duration)
        if not self._acts.postpone(
            lane, handle.offset, receipt.pop_ms, ms, untried=request.suspend
        ):
            raise expired()
        until_ms = self._now_ms() + ms
        words = words_of(receipt._replace(invisible_ms=until_ms - receipt.pop_ms))
        answer_of = classes["ChangeInvisibleDurationResponse"]
        return answer_of(status=OK, receipt_handle=str(handle._replace(words=words)))

    def forward(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        lane, handle, receipt = self._out(
            request, request.lite_topic, request.receipt_handle, client
        )
        if not self._acts.bury(lane, handle.offset, receipt.pop_ms, handle.position, client):
            raise expired()
        end = context.parts.messages.store.commit_log_max_position
        answer_of = classes["ForwardMessageToDeadLetterQueueResponse"]
        return context.when_kept(call, end, answer_of(status=OK), answer_of())


class _Waiting(NamedTuple):
    """A receive that waits for messages."""

    acts: LiteActs
    client: GrpcClient
    again: Any

    def gone(self, unsent: int) -> None:
        self.acts.cancel(self.client, self.again)


class _Sent(NamedTuple):
    """An answer with messages (invariant 3). ends: each message's last byte in it."""

    services: LiteServices
    ask: LiteAsk
    ends: list[tuple[int, HandedOut]]
    size: int

    def gone(self, unsent: int) -> None:
        sent = self.size - unsent
        self.services.give_back(self.ask, [each for end, each in self.ends if end > sent])


def expired() -> StatusFailure:
    """Return the refusal of a receipt that is not valid any more."""
    return StatusFailure(
        Code.INVALID_RECEIPT_HANDLE,
        "INVALID_RECEIPT_HANDLE: receipt handle is expired: the message was acknowledged, or its "
        "invisible time is over",
    )


def _begin(option: Any) -> tuple[From, int]:
    """Return where a subscription begins. Raises: StatusFailure."""
    kind = option.WhichOneof("offset_type")
    if kind == "policy" or kind is None:
        return _POLICIES[OffsetPolicy(option.policy)], 0
    if kind == "timestamp":
        raise StatusFailure(
            Code.BAD_REQUEST, "a lite topic cannot be subscribed from a time on: name an offset"
        )
    value = getattr(option, kind)
    if value < 0:
        raise StatusFailure(Code.ILLEGAL_OFFSET, f"an offset must be 0 or more, not {value}")
    return (From.OFFSET if kind == "offset" else From.TAIL), value
