"""ReceiveMessage and what follows: ack, other invisible time, dead letter. Source: ReceiveMessageActivity,
AckMessageActivity, ChangeInvisibleDurationActivity, RocketMQ 5.5.0.

1. Receiving is a pop: of all queues of the topic, whatever queue the client names.
2. A receive that finds nothing waits without a task; when its client goes, it waits no more.
3. What could not be sent to a client that went comes again at once, and no attempt was made of it.
4. An answer is one status, then messages, then the time of delivery.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from pocketmq.broker.acts.send_back import SentBack
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pop.taking import Popped
from pocketmq.broker.refused import Refused
from pocketmq.grpc import access
from pocketmq.grpc.answers import OK, Failed
from pocketmq.grpc.call import Call, Method, framed
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.desk import Desk, ms_of, parsed
from pocketmq.grpc.handles import Handle
from pocketmq.grpc.mapping import message_of, set_ms
from pocketmq.grpc.messages import ReceiveMessageResponse, Status, classes
from pocketmq.grpc.schema import SERVICE, ClientType, Code, FilterType
from pocketmq.grpc.sessions import RECEIVE_COUNT, Sessions
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers import PopMessageHeader
from pocketmq.remoting.message_codec import get_property
from pocketmq.remoting.pop_receipt import Receipt
from pocketmq.remoting.record import Record, read_records

_INVISIBLE_MS = 60_000
_INVISIBLE_MS_MIN = 10_000
_INVISIBLE_MS_MAX = 12 * 3_600_000
# Before the client's own deadline, so that the answer is there in time.
_RESERVE_MS = 500
_BEGIN_AT_END = 1
_NOTHING = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")
_FOUND = framed(ReceiveMessageResponse(status=OK).SerializeToString())


class _Sent(NamedTuple):
    """A message in an answer: bytes of the answer that are behind it, and how it is given back."""

    behind: int
    queue: QueueOf
    handle: Handle


class Receives:
    """The services."""

    def __init__(self, desk: Desk, sessions: Sessions) -> None:
        self._desk = desk
        self._sessions = sessions
        self._now_ms = desk.parts.node.clock.now_ms

    def methods(self) -> dict[bytes, Method]:
        desk = self._desk
        return {
            f"/{SERVICE}/ReceiveMessage".encode(): Method(self.receive),
            **desk.method("AckMessage", self.ack, access.consumes),
            **desk.method("ChangeInvisibleDuration", self.change, access.is_member),
            **desk.method("ForwardMessageToDeadLetterQueue", self.forward, access.consumes),
        }

    # ------------------------------------------------------------ receive

    def receive(self, call: Call, data: bytes | None) -> None:
        """Raises: GrpcError."""
        request = parsed(classes["ReceiveMessageRequest"], data or b"")
        try:
            self._desk.check_role()
            self._desk.access.check(call, access.consumes_queue(request))
            client = self._desk.clients.of(call)
            ask = self._ask(request, client, call)
            self._pop(ask, client, call, renew=request.auto_renew)
        except (Failed, Refused) as error:
            failed = Failed.by(error) if isinstance(error, Refused) else error
            self._answer_nothing(call, failed.status)

    def _ask(self, request: Any, client: GrpcClient, call: Call) -> PopMessageHeader:
        """Raises: Failed, Refused."""
        desk = self._desk
        topic = desk.topic_of(request.message_queue.topic)
        group = desk.group_of(request.group)
        desk.known_topic(topic)
        if request.auto_renew:
            invisible_ms = _INVISIBLE_MS
        else:
            invisible_ms = ms_of(request.invisible_duration)
            if not _INVISIBLE_MS_MIN <= invisible_ms <= _INVISIBLE_MS_MAX:
                raise _illegal_time(invisible_ms, _INVISIBLE_MS_MIN)
        if call.connection.is_backed_up:
            raise Failed(
                Code.TOO_MANY_REQUESTS, "this connection has more answers to read than it reads"
            )
        kind = ClientType.PUSH_CONSUMER if request.auto_renew else ClientType.SIMPLE_CONSUMER
        by = request.filter_expression
        self._sessions.came_by(client, group, kind, topic, by)
        found = desk.parts.tables.groups.get(group)
        in_order = found is not None and found.extra.get("consumeMessageOrderly") is True
        return PopMessageHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=min(max(request.batch_size, 1), RECEIVE_COUNT),
            invisible_time=invisible_ms,
            poll_time=self._polling_ms(request, call),
            born_time=self._now_ms(),
            init_mode=_BEGIN_AT_END,
            exp_type="SQL92" if by.type == FilterType.SQL else "TAG",
            exp=by.expression or "*",
            order=in_order,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )

    def _polling_ms(self, request: Any, call: Call) -> int:
        most_ms = self._desk.config.polling_ms_max
        left_ms = most_ms + _RESERVE_MS
        if call.deadline_ms is not None:
            left_ms = call.deadline_ms - self._desk.parts.node.clock.monotonic_ms()
        wanted_ms = left_ms
        if request.HasField("long_polling_timeout"):
            wanted_ms = ms_of(request.long_polling_timeout)
        return max(0, min(wanted_ms, left_ms - _RESERVE_MS, most_ms))

    def _pop(self, ask: PopMessageHeader, client: GrpcClient, call: Call, *, renew: bool) -> None:
        """Raises: Refused."""
        acts = self._desk.acts.pop
        again = partial(self._again, ask, client, call, renew=renew)
        found = acts.pop(ask, client, again)
        if found is None:
            queue = QueueOf(ask.consumer_group, ask.topic, ask.queue_id)
            cancel = self._desk.parts.services.pop.cancel
            call.on_gone = lambda unsent: cancel(queue, client, again)
            return
        call.on_gone = None
        if not found.count:
            full = found.code == ResponseCode.POLLING_FULL
            status = Status(code=Code.TOO_MANY_REQUESTS, message="too many wait") if full else None
            self._answer_nothing(call, status or _NOTHING)
            return
        self._answer(ask, found, client, call, renew=renew)

    def _again(self, ask: PopMessageHeader, client: GrpcClient, call: Call, *, renew: bool) -> None:
        """A receive is done waiting, or somebody was quicker."""
        if call.gone:
            return
        try:
            self._pop(ask, client, call, renew=renew)
        except Refused as refused:
            self._answer_nothing(call, Failed.by(refused).status)

    def _answer_nothing(self, call: Call, status: Any) -> None:
        call.on_gone = None
        call.write(framed(ReceiveMessageResponse(status=status).SerializeToString()) + self._time())
        call.finish()

    def _time(self) -> bytes:
        answer = ReceiveMessageResponse()
        set_ms(answer.delivery_timestamp, self._now_ms())
        return framed(answer.SerializeToString())

    def _answer(
        self,
        ask: PopMessageHeader,
        found: Popped,
        client: GrpcClient,
        call: Call,
        *,
        renew: bool,
    ) -> None:
        """Invariants 3 and 4. renew: the client keeps the messages for as long as it lives."""
        hold = self._desk.parts.services.pop.hold
        parts = [_FOUND]
        sent: list[tuple[int, QueueOf, Handle]] = []
        size = len(_FOUND)
        for record, handle, attempt in self._delivered(ask, found):
            message = message_of(record, ask.topic, str(handle), attempt)
            part = framed(ReceiveMessageResponse(message=message).SerializeToString())
            parts.append(part)
            size += len(part)
            queue = handle.queue(ask.consumer_group, ask.topic)
            sent.append((size, queue, handle))
            if renew:
                hold(queue, handle.receipt, client)
        last = self._time()
        size += len(last)
        behind = [_Sent(size - end, queue, handle) for end, queue, handle in sent]
        call.on_gone = lambda unsent: self._give_back(behind, unsent, client)
        call.write(b"".join([*parts, last]))
        call.finish()

    def _delivered(
        self, ask: PopMessageHeader, found: Popped
    ) -> Iterator[tuple[Record, Handle, int]]:
        """Each record with its handle and the number of this attempt."""
        starts = dict(_starts(found.start_info))
        times = dict(_times(found.order_info)) if ask.order else {}
        name = self._desk.broker_name
        for buffer in found.buffers:
            for record in read_records(buffer, check_crc=False):
                queue_id, offset = record.queue_id, record.queue_offset
                text = get_property(record.properties, b"POP_CK")
                if text is not None:
                    receipt = Receipt.parse(text.decode())._replace(queue_offset=offset)
                else:
                    receipt = Receipt(
                        starts["0", queue_id],
                        found.pop_ms,
                        ask.invisible_time,
                        found.revive_queue,
                        "0",
                        name,
                        queue_id,
                        offset,
                    )
                attempt = 1 + record.reconsume_times + times.get((queue_id, offset), 0)
                yield record, Handle(receipt, record.position), attempt

    def _give_back(self, sent: list[_Sent], unsent: int, client: GrpcClient) -> None:
        """Invariant 3."""
        for behind, queue, handle in sent:
            if unsent > behind:
                offset = handle.receipt.queue_offset
                try:
                    self._desk.acts.receipts.postpone(
                        queue, offset, str(handle.receipt), 0, client, suspend=True
                    )
                except Refused:
                    # It comes again by itself, when its time is over.
                    continue

    # ------------------------------------------------------------ receipts

    def ack(self, request: Any, client: GrpcClient, call: Call) -> Any:
        desk = self._desk
        group, topic = desk.group_of(request.group), desk.topic_of(request.topic)
        answer_of = classes["AckMessageResponse"]
        answer, late = answer_of(), answer_of()
        end: int | None = None
        for entry in request.entries:
            done = answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle
            )
            try:
                end = self._ack(group, topic, entry.receipt_handle, client) or end
                done.status.CopyFrom(OK)
            except Refused as refused:
                done.status.CopyFrom(Failed.by(refused).status)
            except Failed as failed:
                done.status.CopyFrom(failed.status)
        if len({entry.status.code for entry in answer.entries}) == 1:
            answer.status.CopyFrom(answer.entries[0].status)
        else:
            answer.status.code = Code.MULTIPLE_RESULTS
        return desk.when_kept(call, end, answer, late)

    def _ack(self, group: str, topic: str, text: str, client: GrpcClient) -> int | None:
        """Raises: Failed, Refused."""
        handle = Handle.parse(text)
        queue, offset = handle.queue(group, topic), handle.receipt.queue_offset
        receipts = self._desk.acts.receipts
        if not receipts.is_valid(queue, offset, handle.receipt):
            raise _expired()
        return receipts.ack(queue, offset, str(handle.receipt), client)

    def change(self, request: Any, client: GrpcClient, call: Call) -> Any:
        desk = self._desk
        group, topic = desk.group_of(request.group), desk.topic_of(request.topic)
        handle = Handle.parse(request.receipt_handle)
        invisible_ms = ms_of(request.invisible_duration)
        if not 0 <= invisible_ms <= _INVISIBLE_MS_MAX:
            raise _illegal_time(invisible_ms, 0)
        receipt = handle.receipt
        queue = handle.queue(group, topic)
        if not desk.acts.receipts.is_valid(queue, receipt.queue_offset, receipt):
            raise _expired()
        found = desk.acts.receipts.postpone(
            queue,
            receipt.queue_offset,
            str(receipt),
            invisible_ms,
            client,
            suspend=request.suspend,
        )
        if found is None:
            raise _expired()
        new = receipt._replace(
            start_offset=receipt.start_offset if receipt.is_order else receipt.queue_offset,
            pop_ms=found.pop_ms,
            invisible_ms=found.invisible_ms,
            revive_queue=found.revive_queue,
        )
        answer_of = classes["ChangeInvisibleDurationResponse"]
        answer = answer_of(status=OK, receipt_handle=str(handle._replace(receipt=new)))
        late = answer_of(receipt_handle=request.receipt_handle)
        return desk.when_kept(call, found.end, answer, late)

    def forward(self, request: Any, client: GrpcClient, call: Call) -> Any:
        desk = self._desk
        group, topic = desk.group_of(request.group), desk.topic_of(request.topic)
        handle = Handle.parse(request.receipt_handle)
        queue, receipt = handle.queue(group, topic), handle.receipt
        if handle.position < 0 or not desk.acts.receipts.is_valid(
            queue, receipt.queue_offset, receipt
        ):
            raise _expired()
        desk.acts.send_back.send_back(SentBack(group, handle.position, delay_level=-1), client)
        desk.acts.receipts.ack(queue, receipt.queue_offset, str(receipt), client)
        end = desk.parts.messages.store.commit_log_max_position
        answer_of = classes["ForwardMessageToDeadLetterQueueResponse"]
        return desk.when_kept(call, end, answer_of(status=OK), answer_of())


def _expired() -> Failed:
    return Failed(
        Code.INVALID_RECEIPT_HANDLE,
        "receipt handle is expired: the message was acknowledged, or its invisible time is over",
    )


def _illegal_time(ms: int, low_ms: int) -> Failed:
    return Failed(
        Code.ILLEGAL_INVISIBLE_TIME,
        f"the invisible time is {low_ms // 1000} s to {_INVISIBLE_MS_MAX // 3_600_000} h, not {ms} ms",
    )


def _starts(infos: list[str]) -> Iterator[tuple[tuple[str, int], int]]:
    """(retry flag, queue) and the start offset of a check point, from `0 2 17`."""
    for info in infos:
        flag, queue_id, offset = info.split(" ")
        yield (flag, int(queue_id)), int(offset)


def _times(infos: list[str]) -> Iterator[tuple[tuple[int, int], int]]:
    """(queue, offset) and how often it was handed out before, from `0 qo2%17 1`."""
    for info in infos:
        _, place, count = info.split(" ")
        if place.startswith("qo"):
            queue_id, _, offset = place[2:].partition("%")
            yield (int(queue_id), int(offset)), int(count)
