"""ReceiveMessage and what follows: ack, changed invisible time, dead letter. Source:
ReceiveMessageActivity, AckMessageActivity, ChangeInvisibleDurationActivity, RocketMQ 5.5.0.

1. Receiving is a pop: of all queues of the topic, whatever queue the client names.
2. A receive that finds nothing waits without a task; it ends with its client.
3. Messages that could not be sent to a lost client are redelivered at once, without counting an attempt.
4. An answer is one status, then messages, then the time of delivery.
5. A message's handle is made from what the pop says of its place, never from the message's properties, which
   are its sender's. A message that cannot be written costs the others nothing.
One noun: what one receive hands out, and what becomes of it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pocketmq.broker.acts.lite import LiteAsk
from pocketmq.broker.acts.send_back import SentBack
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.pop.taking import Popped
from pocketmq.broker.refused import Refused
from pocketmq.grpc.answers import OK, StatusFailure
from pocketmq.grpc.clients import GrpcClient
from pocketmq.grpc.encode import acked, framed_message
from pocketmq.grpc.http2.call import GrpcCall, Method, framed
from pocketmq.grpc.mapping import set_ms
from pocketmq.grpc.messages import ReceiveMessageResponse, Status, classes
from pocketmq.grpc.receipt_handle import PoppedFrom, ReceiptHandle, handed_out, no_handle, words_of
from pocketmq.grpc.schema import SERVICE, ClientType, Code, FilterType
from pocketmq.grpc.services import access
from pocketmq.grpc.services.backoff import PAUSE_MIN_MS
from pocketmq.grpc.services.context import RequestContext, ms_of, parsed
from pocketmq.grpc.services.lite import LiteServices, Receive, expired
from pocketmq.grpc.services.sessions import RECEIVE_COUNT, Sessions
from pocketmq.grpc.unpacking import Unpacking
from pocketmq.model.pop_receipt import Receipt
from pocketmq.model.record import Buffer, Record, read_record, size_of
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import MessageCodecError
from pocketmq.remoting.headers import PopMessageHeader

log = logging.getLogger(__name__)

_INVISIBLE_MS = 60_000
_INVISIBLE_MS_MIN = 10_000
_INVISIBLE_MS_MAX = 12 * 3_600_000
# Before the client's own deadline, so that the answer is there in time.
_RESERVE_MS = 500
_BEGIN_AT_END = 1
_ACKS_MAX = 1_024
_NOTHING = Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")
_FOUND = framed(ReceiveMessageResponse(status=OK).SerializeToString())


class Receives:
    """The services."""

    def __init__(self, context: RequestContext, sessions: Sessions, lite: LiteServices) -> None:
        self._context = context
        self._sessions = sessions
        self._lite = lite
        self._now_ms = context.parts.node.clock.now_ms

    def methods(self) -> dict[bytes, Method]:
        context = self._context
        return {
            f"/{SERVICE}/ReceiveMessage".encode(): Method(self.receive),
            **context.method("AckMessage", self.ack, access.consumes),
            **context.method("ChangeInvisibleDuration", self.change, access.is_member),
            **context.method("ForwardMessageToDeadLetterQueue", self.forward, access.consumes),
        }

    # ------------------------------------------------------------ receive

    def receive(self, call: GrpcCall, data: bytes | None) -> Iterator[None] | None:
        """Answer a receive. Raises: GrpcError."""
        request = parsed(classes["ReceiveMessageRequest"], data or b"")
        try:
            self._context.check_role()
            self._context.access.check(call, access.consumes_queue(request))
            client = self._context.clients.of(call)
            ask = self._ask(request, client, call)
            kind = ClientType.PUSH_CONSUMER if request.auto_renew else ClientType.SIMPLE_CONSUMER
            entering = self._sessions.came_by(
                client, ask.consumer_group, kind, ask.topic, request.filter_expression
            )
            if entering is not None:
                return self._entered(entering, ask, client, call, renew=request.auto_renew)
            until_ms = self._context.acts.pop.waits_until_ms(ask)
            self._pop(ask, client, call, until_ms, renew=request.auto_renew)
        except (StatusFailure, Refused) as error:
            self._refuse(call, error)
        return None

    def _entered(
        self,
        entering: Iterator[None],
        ask: PopMessageHeader,
        client: GrpcClient,
        call: GrpcCall,
        *,
        renew: bool,
    ) -> Iterator[None]:
        """Answer a receive of a client that becomes a member with it."""
        try:
            yield from entering
            until_ms = self._context.acts.pop.waits_until_ms(ask)
            self._pop(ask, client, call, until_ms, renew=renew)
        except (StatusFailure, Refused) as error:
            self._refuse(call, error)

    def _refuse(self, call: GrpcCall, error: StatusFailure | Refused) -> None:
        failed = StatusFailure.by(error) if isinstance(error, Refused) else error
        self._answer_nothing(call, failed.status)

    def _ask(self, request: Any, client: GrpcClient, call: GrpcCall) -> PopMessageHeader:
        """Return the request as the act's. Raises: StatusFailure, Refused."""
        context = self._context
        topic = context.topic_of(request.message_queue.topic)
        group = context.group_of(request.group)
        context.known_topic(topic)
        if request.auto_renew:
            invisible_ms = _INVISIBLE_MS
        else:
            invisible_ms = ms_of(request.invisible_duration)
            if not _INVISIBLE_MS_MIN <= invisible_ms <= _INVISIBLE_MS_MAX:
                raise _illegal_time(invisible_ms, _INVISIBLE_MS_MIN)
        if call.connection.is_backed_up:
            raise StatusFailure(
                Code.TOO_MANY_REQUESTS,
                "too many answers of this connection wait to be read: read them first",
            )
        by = request.filter_expression
        found = context.parts.tables.groups.get(group)
        in_order = found is not None and found.extra.get("consumeMessageOrderly") is True
        return PopMessageHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=min(max(request.batch_size, 1), RECEIVE_COUNT),
            invisible_time=invisible_ms,
            poll_time=self._polling_ms(request, client, call),
            born_time=0,
            init_mode=_BEGIN_AT_END,
            exp_type="SQL92" if by.type == FilterType.SQL else "TAG",
            exp=by.expression or "*",
            order=in_order,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )

    def _polling_ms(self, request: Any, client: GrpcClient, call: GrpcCall) -> int:
        most_ms = self._context.config.polling_ms_max
        left_ms = most_ms + _RESERVE_MS
        if call.deadline_ms is not None:
            left_ms = call.deadline_ms - self._context.parts.node.clock.monotonic_ms()
        wanted_ms = left_ms
        if request.HasField("long_polling_timeout"):
            wanted_ms = ms_of(request.long_polling_timeout)
        elif client.settings is not None and client.settings.subscription.HasField(
            "long_polling_timeout"
        ):
            # The first SDKs of 5.0 say it once, and add only their patience to a call's deadline.
            wanted_ms = ms_of(client.settings.subscription.long_polling_timeout)
        return max(0, min(wanted_ms, left_ms - _RESERVE_MS, most_ms))

    def _pop(
        self,
        ask: PopMessageHeader,
        client: GrpcClient,
        call: GrpcCall,
        until_ms: int,
        *,
        renew: bool,
    ) -> None:
        """Pop, or hold the pop, unless the client has disconnected meanwhile. Raises: Refused."""
        if call.gone or call.connection.closed:
            return
        if self._lite.concerns(ask.consumer_group, client):
            lite = LiteAsk(client.client_id, ask.consumer_group, ask.topic)
            receive = Receive(lite, ask.max_msg_nums, ask.invisible_time, until_ms, renew)
            self._lite.receive(receive, client, call)
            return
        acts = self._context.acts.pop
        again = partial(self._again, ask, client, call, until_ms, renew=renew)
        found = acts.pop(ask, client, until_ms, again)
        if found is None:
            queue = GroupQueue(ask.consumer_group, ask.topic, ask.queue_id)
            call.wait(_Waiting(self._context.parts.services.pop, queue, client, again))
            return
        call.wait(None)
        if not found.count:
            full = found.code == ResponseCode.POLLING_FULL
            status = Status(code=Code.TOO_MANY_REQUESTS, message="too many wait") if full else None
            self._answer_nothing(call, status or _NOTHING)
            return
        self._answer(ask, found, client, call, renew=renew)

    def _again(
        self,
        ask: PopMessageHeader,
        client: GrpcClient,
        call: GrpcCall,
        until_ms: int,
        *,
        renew: bool,
    ) -> None:
        """Retry a receive that is done waiting; another client may have been quicker."""
        try:
            self._pop(ask, client, call, until_ms, renew=renew)
        except Refused as refused:
            self._refuse(call, refused)

    def _answer_nothing(self, call: GrpcCall, status: Any) -> None:
        call.answer(
            framed(ReceiveMessageResponse(status=status).SerializeToString()) + self._time()
        )

    def _time(self) -> bytes:
        answer = ReceiveMessageResponse()
        set_ms(answer.delivery_timestamp, self._now_ms())
        return framed(answer.SerializeToString())

    def _answer(
        self,
        ask: PopMessageHeader,
        found: Popped,
        client: GrpcClient,
        call: GrpcCall,
        *,
        renew: bool,
    ) -> None:
        """Apply invariants 3 and 4. renew: the client keeps the messages while it is connected."""
        group, topic = ask.consumer_group, ask.topic
        parts: list[Buffer] = [_FOUND]
        sent: list[tuple[int, ReceiptHandle]] = []
        size = len(_FOUND)
        unpacking = Unpacking(client.language)
        later: list[ReceiptHandle] = []
        for record, handle, attempt in self._delivered(ask, found):
            written = None
            if not (unpacking.is_cut and ask.order):
                try:
                    written = framed_message(record, unpacking, topic, str(handle), attempt)
                except Exception:
                    # A bug, but this message's alone: it is redelivered until it is a dead letter.
                    where = record.position
                    log.exception("a message cannot be put into an answer position=%d", where)
                    continue
            if written is None:
                later.append(handle)
                continue
            parts += written
            size += len(written[0]) + len(written[1])
            sent.append((size, handle))
        self.give_back(ask, later, client)
        if renew:
            hold = self._context.parts.services.pop.hold
            for words in {handle.words for _, handle in sent}:
                hold(*handed_out(group, topic, words), client)
        parts.append(self._time())
        size += len(parts[-1])
        call.answer(b"".join(parts), _Sent(self, ask, client, sent, size))

    def _delivered(
        self, ask: PopMessageHeader, found: Popped
    ) -> Iterator[tuple[Record, ReceiptHandle, int]]:
        """Yield each record with its handle and the number of this attempt."""
        times = dict(_times(found.order_info)) if ask.order else None
        shared = {
            (flag, queue_id): words_of(
                Receipt(
                    start,
                    found.pop_ms,
                    ask.invisible_time,
                    found.revive_queue,
                    flag,
                    self._context.broker_name,
                    queue_id,
                )
            )
            for (flag, queue_id), start in _starts(found.start_info)
        }
        places = _places(found.offset_info)
        for record, (flag, queue_id, offset) in zip(_records(found), places, strict=False):
            if record is None:
                continue
            attempt = 1 + record.reconsume_times
            if times is not None:
                attempt += times.get((queue_id, offset), 0)
            yield record, ReceiptHandle(shared[flag, queue_id], offset, record.position), attempt

    def give_back(
        self, ask: PopMessageHeader, handles: Iterable[ReceiptHandle], client: GrpcClient
    ) -> None:
        """Apply invariant 3."""
        for handle in handles:
            out = handle.out(ask.consumer_group, ask.topic)
            with contextlib.suppress(Refused):
                # A refused message is redelivered when its invisible time ends.
                self._context.acts.receipts.postpone(
                    out.queue, handle.offset, handle.words, 0, client, suspend=True
                )

    # ------------------------------------------------------------ receipts

    def ack(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        """Acknowledge messages, one record for all that one pop took from one queue."""
        context = self._context
        group, topic = context.group_of(request.group), context.topic_of(request.topic)
        entries = request.entries
        if entries and entries[0].HasField("lite_topic"):
            return self._lite.ack(request, client, call)
        if len(entries) > _ACKS_MAX:
            raise StatusFailure(
                Code.BAD_REQUEST,
                f"one request acknowledges at most {_ACKS_MAX} messages, not {len(entries)}: split it",
            )
        failed: dict[int, StatusFailure] = {}
        asked: dict[str, dict[int, int]] = {}
        for place, entry in enumerate(entries):
            try:
                words, offset, _ = ReceiptHandle.parse(entry.receipt_handle)
                asked.setdefault(words, {})[place] = offset
            except StatusFailure as error:
                failed[place] = error
        end: int | None = None
        for words, offsets in asked.items():
            try:
                done, there = self._ack(group, topic, words, offsets.values(), client)
                end = there or end
                if len(done) < len(offsets):
                    late = {place for place, offset in offsets.items() if offset not in done}
                    failed.update(dict.fromkeys(late, expired()))
            except StatusFailure as error:
                failed.update(dict.fromkeys(offsets, error))
        if not failed and entries and (end is None or not context.parts.messages.durability.waits):
            return acked([entry.SerializeToString() for entry in entries])
        return self._acks_answered(call, entries, failed, end)

    def _ack(
        self, group: str, topic: str, words: str, offsets: Iterable[int], client: GrpcClient
    ) -> tuple[set[int], int | None]:
        """Acknowledge messages of a pop; return their offsets and the log position. Raises: StatusFailure."""
        out = handed_out(group, topic, words)
        try:
            return self._context.acts.receipts.done(out.queue, out.receipt, offsets, client)
        except Refused as refused:
            raise StatusFailure.by(refused) from refused

    def _acks_answered(
        self, call: GrpcCall, entries: Any, failed: Mapping[int, StatusFailure], end: int | None
    ) -> Any:
        """Answer each entry with its own status. failed: by place."""
        answer_of = classes["AckMessageResponse"]
        answer, late = answer_of(), answer_of()
        for place, entry in enumerate(entries):
            error = failed.get(place)
            answer.entries.add(
                message_id=entry.message_id,
                receipt_handle=entry.receipt_handle,
                status=OK if error is None else error.status,
            )
        if len({entry.status.code for entry in answer.entries}) == 1:
            answer.status.CopyFrom(answer.entries[0].status)
        else:
            answer.status.code = Code.MULTIPLE_RESULTS
        return self._context.when_kept(call, end, answer, late)

    def change(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        invisible_ms = ms_of(request.invisible_duration)
        if not 0 <= invisible_ms <= _INVISIBLE_MS_MAX:
            raise _illegal_time(invisible_ms, 0)
        if request.HasField("lite_topic"):
            return self._lite.change(request, client)
        handle, (queue, receipt) = self._handle_of(request)
        if not context.acts.receipts.is_valid(queue, handle.offset, receipt):
            raise expired()
        if invisible_ms < PAUSE_MIN_MS and not (request.suspend or receipt.is_order):
            attempt = 1 + self._reconsumed(handle, queue)
            invisible_ms = max(invisible_ms, self._sessions.pause_ms(client, queue.group, attempt))
        found = context.acts.receipts.postpone(
            queue, handle.offset, handle.words, invisible_ms, client, suspend=request.suspend
        )
        if found is None:
            raise expired()
        new = receipt._replace(
            start_offset=receipt.start_offset if receipt.is_order else handle.offset,
            pop_ms=found.pop_ms,
            invisible_ms=found.invisible_ms,
            revive_queue=found.revive_queue,
        )
        answer_of = classes["ChangeInvisibleDurationResponse"]
        answer = answer_of(status=OK, receipt_handle=str(handle._replace(words=words_of(new))))
        late = answer_of(receipt_handle=request.receipt_handle)
        return context.when_kept(call, found.end, answer, late)

    def forward(self, request: Any, client: GrpcClient, call: GrpcCall) -> Any:
        context = self._context
        if request.HasField("lite_topic"):
            return self._lite.forward(request, client, call)
        handle, (queue, receipt) = self._handle_of(request)
        receipts = context.acts.receipts
        if not receipts.is_valid(queue, handle.offset, receipt):
            raise expired()
        self._check_position(handle, queue)
        sent_back = SentBack(queue.group, handle.position, delay_level=-1)
        context.acts.send_back.send_back(sent_back, client)
        receipts.done(queue, receipt, [handle.offset], client)
        end = context.parts.messages.store.commit_log_max_position
        answer_of = classes["ForwardMessageToDeadLetterQueueResponse"]
        return context.when_kept(call, end, answer_of(status=OK), answer_of())

    def _check_position(self, handle: ReceiptHandle, queue: GroupQueue) -> None:
        """Check that the handle's position is that of its message: the client could name any other's.

        Raises: StatusFailure.
        """
        if self._record_of(handle, queue) is None:
            raise no_handle(str(handle))

    def _record_of(self, handle: ReceiptHandle, queue: GroupQueue) -> Record | None:
        """Return the message at the handle's position; None if it is another than the handle's."""
        data = self._context.parts.messages.store.message_at(handle.position)
        record = None if data is None else read_record(data, check_crc=False)
        if record is None or (record.topic, record.queue_id, record.queue_offset) != (
            queue.topic,
            queue.queue_id,
            handle.offset,
        ):
            return None
        return record

    def _reconsumed(self, handle: ReceiptHandle, queue: GroupQueue) -> int:
        """Return how often the message had been consumed in vain when it was handed out."""
        record = self._record_of(handle, queue)
        return 0 if record is None else record.reconsume_times

    def _handle_of(self, request: Any) -> tuple[ReceiptHandle, PoppedFrom]:
        """Return the parsed handle of a request. Raises: StatusFailure."""
        context = self._context
        group, topic = context.group_of(request.group), context.topic_of(request.topic)
        handle = ReceiptHandle.parse(request.receipt_handle)
        return handle, handle.out(group, topic)


class _Waiting(NamedTuple):
    """A receive that waits for messages (invariant 2)."""

    pops: PopService
    queue: GroupQueue
    client: GrpcClient
    again: Callable[[], None]

    def gone(self, unsent: int) -> None:
        self.pops.cancel(self.queue, self.client, self.again)


class _Sent(NamedTuple):
    """An answer with messages (invariant 3). ends: each message's last byte in it, with its handle."""

    receives: Receives
    ask: PopMessageHeader
    client: GrpcClient
    ends: list[tuple[int, ReceiptHandle]]
    size: int

    def gone(self, unsent: int) -> None:
        sent = self.size - unsent
        self.receives.give_back(
            self.ask, [handle for end, handle in self.ends if end > sent], self.client
        )


def _illegal_time(ms: int, low_ms: int) -> StatusFailure:
    # The proxy's words: programs look for them.
    limit = f"small. min is: {low_ms}" if ms < low_ms else f"large. max is: {_INVISIBLE_MS_MAX}"
    return StatusFailure(
        Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too {limit}, in milliseconds; not {ms}"
    )


def _records(found: Popped) -> Iterator[Record | None]:
    """Yield the records of a pop; None for one that cannot be read, which costs the others nothing."""
    for buffer in found.buffers:
        at, end = 0, len(buffer)
        while at < end:
            try:
                yield read_record(buffer, at, check_crc=False)
            except MessageCodecError as error:
                log.error("a popped message cannot be read, and comes again reason=%s", error)
                yield None
            at += size_of(buffer, at)


def _places(infos: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (retry flag, queue, offset) of each message of a pop, in its order, from `0 2 17,18`."""
    for info in infos:
        flag, queue_id, offsets = info.split(" ")
        for offset in offsets.split(","):
            yield flag, int(queue_id), int(offset)


def _starts(infos: list[str]) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield (retry flag, queue) and the start offset of a check point, from `0 2 17`."""
    for info in infos:
        flag, queue_id, offset = info.split(" ")
        yield (flag, int(queue_id)), int(offset)


def _times(infos: list[str]) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (queue, offset) and how often it was delivered before, from `0 qo2%17 1`."""
    for info in infos:
        _, place, count = info.split(" ")
        if place.startswith("qo"):
            queue_id, _, offset = place[2:].partition("%")
            yield (int(queue_id), int(offset)), int(count)
