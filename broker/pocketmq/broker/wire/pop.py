"""Popping: POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO.

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor, RocketMQ
5.3.3; wire.md 2.6.

1. A pop reads the topic's queue, or all of them from a random one on, and the group's pop retry topics,
   first or last by chance; what it hands out is in the revive log before (revive_log.py).
2. Records of a retry topic are written anew with the topic's own name and their receipt in POP_CK: the
   client sees no retry topic.
3. A pop that finds nothing waits (pop_polling.py) until bornTime + pollTime. Ours: never longer than
   pollTime, whatever the client's clock says.
4. An orderly pop (order=true) takes no check point, it blocks its queue (order_info.py).
5. Ours: a group's policy may refuse a pop (policy.py): a pop is filtered by its own expression, and the
   group moves on behind what another member asks for.
"""

import logging
import random
from collections.abc import Callable
from functools import partial

from pocketmq.broker.held_request import HeldRequest
from pocketmq.broker.parts import Members, Messages, Node, Tables
from pocketmq.broker.pop.check_point import OFFSETS_MAX, Name
from pocketmq.broker.pop.pop_polling import PopPolling
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pop.receipt import (
    INVISIBLE_MS_MAX,
    ORDER_REVIVE_QUEUE,
    Receipt,
    offsets_info,
    pop_retry_topic,
    retry_flag,
)
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.sql92 import SelectorError, compile_expression
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.broker.tag_filter import TagFilter
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, encode_head
from pocketmq.remoting.connection import Connection, Handler, Reply
from pocketmq.remoting.errors import HeaderError, IllegalArgument
from pocketmq.remoting.flags import Perm, PullSysFlag
from pocketmq.remoting.headers import (
    NotificationHeader,
    NotificationResponseHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PollingInfoResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
    PullMessageHeader,
)
from pocketmq.remoting.message_codec import add_property, get_property
from pocketmq.remoting.names import FAQ, RETRY_PREFIX
from pocketmq.remoting.record import MAGIC_V1, queue_offset_of, read_records, size_of, write_record
from pocketmq.remoting.subscription import build_subscription
from pocketmq.store import EntryFilter, ReadResult, ReadStatus, StoreError

log = logging.getLogger(__name__)

FROM_MIN = 0
_TOO_LATE_MS = 500
# A pop that has less time left than this is not held any more.
_HOLD_MIN_MS = 50
_SIZE_MAX = 262_144
_WRONG_PLACE = (
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_FOUND_NULL,
)
_SKIPPED = (ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING)

_Header = PopMessageHeader | PeekMessageHeader | NotificationHeader | PollingInfoHeader


class _Answer:
    """What one pop has found so far."""

    def __init__(self, pop_ms: int, revive_queue: int) -> None:
        self.pop_ms = pop_ms
        self.revive_queue = revive_queue
        self.count = self.size = self.rest = 0
        self.buffers: list[memoryview | bytes] = []
        self.start_info: list[str] = []
        self.offset_info: list[str] = []
        self.order_info: list[str] = []
        self.failure: StoreError | None = None

    def ext(self, header: PopMessageHeader) -> dict[str, str]:
        return PopMessageResponseHeader(
            pop_time=self.pop_ms,
            invisible_time=header.invisible_time,
            revive_qid=self.revive_queue,
            rest_num=self.rest,
            start_offset_info=";".join(self.start_info),
            msg_offset_info=";".join(self.offset_info),
            order_count_info=";".join(self.order_info) if header.order else None,
        ).ext()


class PopMessageProcessor:
    """Handlers of the four codes."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        members: Members,
        messages: Messages,
        pop: PopService,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._policies = members.policies
        self._store = messages.store
        self._stats = messages.stats
        self._deliveries = messages.deliveries
        self._begins_on_disk = messages.reach.begins_on_disk
        self._pop = pop
        self._random_below = random_below

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def _again(self, request: RemotingCommand, connection: Connection) -> None:
        """A request is done waiting: answer it, or let it wait again."""
        handler = self.pop if request.code == RequestCode.POP_MESSAGE else self.notify
        reply = handler(request, connection)
        if reply is not None:
            connection.send(reply)

    # ------------------------------------------------------------ the requests

    def pop(self, request: RemotingCommand, connection: Connection) -> Reply:
        """POP_MESSAGE."""
        began_ms = self._clock.monotonic_ms()
        header = PopMessageHeader.parse(self._with_born_time(request))
        if self._clock.now_ms() - header.born_time - header.poll_time > _TOO_LATE_MS:
            remark = f"the broker[{self._config.broker_ip1}] pop message is timeout too much"
            return _refused(request, ResponseCode.POLLING_TIMEOUT, remark)
        header.invisible_time = min(max(0, header.invisible_time), INVISIBLE_MS_MAX)
        if header.max_msg_nums > OFFSETS_MAX:
            remark = f"the broker[{self._config.broker_ip1}] pop message's num is greater than 32"
            return _refused(request, ResponseCode.INVALID_PARAMETER, remark)
        refusal = self._refusal(request, connection, header, "pop")
        if refusal is not None:
            return refusal
        if not header.order:
            fault = self._pop.revive.fault(header.topic, header.consumer_group)
            if fault is not None:
                return _refused(request, ResponseCode.INVALID_PARAMETER, fault)
        group = header.consumer_group
        remark_of_ours = self._policies.of(group).pop_refusal(group, connection)
        if remark_of_ours is not None:
            log.warning("pop refused peer=%s reason=%r", connection.peer, remark_of_ours)
            return _refused(request, ResponseCode.SUBSCRIPTION_NOT_EXIST, remark_of_ours)
        try:
            matches = _filter(header)
        except (IllegalArgument, SelectorError) as error:
            log.warning(
                "the subscription of a pop cannot be read group=%s expression=%r reason=%s",
                header.consumer_group,
                (header.exp or "")[:300],
                error,
            )
            return _refused(
                request,
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                "parse the consumer's subscription failed",
            )
        answer = self._take(header, matches, connection)
        if answer.count:
            counter = self._stats.get_counter(header.consumer_group, header.topic, header.queue_id)
            counter.nums += answer.count
            counter.size += answer.size
            counter.calls += 1
            counter.latency_ms += self._clock.monotonic_ms() - began_ms
            if answer.rest > 0:
                self._pop.polling.wake(header.consumer_group, header.topic, header.queue_id)
            self._pop.wake()
            found = request.answer(ResponseCode.SUCCESS, "FOUND", answer.ext(header))
            return [encode_head(found, answer.size), *answer.buffers]
        if answer.failure is not None:
            return _refused(request, ResponseCode.SYSTEM_ERROR, str(answer.failure))
        properties = matches.properties if isinstance(matches, ExpressionMessageFilter) else None
        code = self._hold(self._pop.polling, request, connection, header, matches, properties)
        if code is None:
            return None
        return request.answer(code, "NO_MESSAGE_IN_QUEUE", answer.ext(header))

    def notify(self, request: RemotingCommand, connection: Connection) -> Reply:
        """NOTIFICATION: whether there is something to pop; waits for it as a pop does."""
        header = NotificationHeader.parse(self._with_born_time(request))
        refusal = self._refusal(request, connection, header, "peeking")
        if refusal is not None:
            return refusal
        has_message = any(
            self._has_message(topic, queue_id, header)
            for topic, queue_id in self._queues(
                header.topic, header.consumer_group, header.queue_id
            )
        )
        full = False
        if not has_message:
            code = self._hold(self._pop.notifications, request, connection, header, None, None)
            if code is None:
                return None
            full = code == ResponseCode.POLLING_FULL
        ext = NotificationResponseHeader(has_msg=has_message, polling_full=full).ext()
        return request.answer(ResponseCode.SUCCESS, None, ext)

    def peek(self, request: RemotingCommand, connection: Connection) -> Reply:
        """PEEK_MESSAGE: what the group's next pop might get; nothing changes."""
        header = PeekMessageHeader.parse(request.ext)
        refusal = self._refusal(request, connection, header, "peeking")
        if refusal is not None:
            return refusal
        answer = _Answer(0, 0)
        group = header.consumer_group
        for topic, queue_id in self._queues(header.topic, group, header.queue_id):
            committed = self._offsets.query(group, topic, queue_id)
            offset = self._pop.log.state.next_offset(QueueOf(group, topic, queue_id), committed)
            if offset < 0:
                offset = self._store.min_offset(topic, queue_id)
            answer.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            wanted = min(header.max_msg_nums, OFFSETS_MAX) - answer.count
            if wanted > 0:
                result = self._store.read(topic, queue_id, offset, wanted, None, _SIZE_MAX)
                if result.status in _WRONG_PLACE:
                    offset = result.next_offset
                    result = self._store.read(topic, queue_id, offset, wanted, None, _SIZE_MAX)
                answer.count += result.count
                answer.size += result.size
                answer.buffers += result.buffers
        ext = PopMessageResponseHeader(0, 0, 0, answer.rest).ext()
        if not answer.count:
            return request.answer(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", ext)
        found = request.answer(ResponseCode.SUCCESS, "FOUND", ext)
        return [encode_head(found, answer.size), *answer.buffers]

    def polling_info(self, request: RemotingCommand, connection: Connection) -> Reply:
        """POLLING_INFO: how many pops wait."""
        header = PollingInfoHeader.parse(request.ext)
        refusal = self._refusal(request, connection, header, "peeking")
        if refusal is not None:
            return refusal
        queue = QueueOf(header.consumer_group, header.topic, header.queue_id)
        ext = PollingInfoResponseHeader(polling_num=self._pop.polling.polling(queue)).ext()
        return request.answer(ResponseCode.SUCCESS, None, ext)

    # ------------------------------------------------------------ before it

    def _with_born_time(self, request: RemotingCommand) -> dict[str, str]:
        """The fields; a request that was born never, or in the future, is born now (invariant 3), for its
        later runs too. Raises: HeaderError."""
        ext = request.ext or {}
        now = self._clock.now_ms()
        try:
            born_ms = int(ext.get("bornTime", "0"))
        except ValueError as error:
            raise HeaderError(f"bornTime is no number: {ext['bornTime'][:50]!r}") from error
        if not 0 < born_ms <= now:
            request.ext = ext = {**ext, "bornTime": str(now)}
        return ext

    def _refusal(
        self, request: RemotingCommand, connection: Connection, header: _Header, what: str
    ) -> RemotingCommand | None:
        """RocketMQ's checks in its order; None when nothing speaks against the request."""
        config, name, group = self._config, header.topic, header.consumer_group
        if not config.broker_permission & Perm.READ:
            remark = f"the broker[{config.broker_ip1}] {what} message is forbidden"
            return _refused(request, ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(name)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", name[:300], connection.peer)
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            return _refused(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic[{name}] peeking message is forbidden"
            return _refused(request, ResponseCode.NO_PERMISSION, remark)
        if header.queue_id >= topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.peer}]"
            )
            return _refused(request, ResponseCode.INVALID_PARAMETER, remark)
        found = self._groups.find(group)
        if found is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            return _refused(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            return _refused(request, ResponseCode.NO_PERMISSION, remark)
        return None

    # ------------------------------------------------------------ taking messages

    def _queues(
        self, topic: str, group: str, queue_id: int, *, retry: bool = True
    ) -> list[tuple[str, int]]:
        """The queues that a pop looks at, in the order of this time (invariant 1)."""
        chance = self._random_below(100)
        own = [queue_id] if queue_id >= 0 else self._in_turn(topic, chance)
        queues = [(topic, number) for number in own]
        if not retry:
            return queues
        v2 = self._config.enable_retry_topic_v2
        again = [
            (name, number)
            for name in (
                pop_retry_topic(topic, group, v2=v2),
                pop_retry_topic(topic, group, v2=not v2),
            )
            for number in self._in_turn(name, chance)
        ]
        first = chance < self._config.pop_from_retry_probability
        return again + queues if first else queues + again

    def _in_turn(self, topic: str, chance: int) -> list[int]:
        found = self._topics.get(topic)
        count = 0 if found is None else found.read_queue_nums
        return [(chance + number) % count for number in range(count)]

    def _take(
        self, header: PopMessageHeader, matches: EntryFilter | None, connection: Connection
    ) -> _Answer:
        """Hand out up to maxMsgNums messages."""
        order = bool(header.order)
        revive_queue = ORDER_REVIVE_QUEUE if order else self._pop.log.turn()
        answer = _Answer(self._clock.now_ms(), revive_queue)
        topic, group = header.topic, header.consumer_group
        for name, queue_id in self._queues(topic, group, header.queue_id, retry=not order):
            queue = QueueOf(group, name, queue_id)
            if order and self._pop.order.is_blocked(queue, header.attempt_id):
                continue
            offset = self._begin(queue, header.init_mode)
            wanted = max(1, header.max_msg_nums) - answer.count
            if wanted <= 0 or answer.failure is not None:
                answer.rest += max(0, self._store.max_offset(name, queue_id) - offset)
                continue
            following = self._take_from(queue, offset, wanted, header, matches, answer)
            if following is not None:
                count, end = following
                self._deliveries.pulled(
                    _as_pull(header, queue, offset),
                    connection,
                    matches,
                    end,
                    count,
                    self._clock.monotonic_ms(),
                )
        return answer

    def _begin(self, queue: QueueOf, init_mode: int) -> int:
        """Where a group goes on in a queue, or begins."""
        group, topic, queue_id = queue
        committed = self._offsets.query(group, topic, queue_id)
        offset = self._pop.log.state.next_offset(queue, committed)
        if offset >= 0:
            return offset
        offset = self._store.min_offset(topic, queue_id)
        from_max = init_mode != FROM_MIN and not topic.startswith(RETRY_PREFIX)
        # As for a pull consumer's CONSUME_FROM_LAST_OFFSET: a young queue is read from its beginning.
        if from_max and (offset > 0 or self._begins_on_disk(topic, queue_id)):
            offset = max(0, self._store.max_offset(topic, queue_id) - 1)
        self._offsets.place(group, topic, queue_id, offset)
        return offset

    def _take_from(
        self,
        queue: QueueOf,
        offset: int,
        wanted: int,
        header: PopMessageHeader,
        matches: EntryFilter | None,
        answer: _Answer,
    ) -> tuple[int, int] | None:
        """Returns: messages taken and where the group goes on; None when `offset` was wrong or nothing
        could be written down."""
        group, topic, queue_id = queue
        begin = offset
        store = self._store
        result = store.read(topic, queue_id, offset, wanted, matches, _SIZE_MAX)
        if result.status in _WRONG_PLACE:
            log.warning(
                "pop: the offset is not in the queue %s %d->%d", queue, offset, result.next_offset
            )
            offset = result.next_offset
            self._pop.log.reset(queue, offset)
            self._offsets.place(group, topic, queue_id, offset)
            result = store.read(topic, queue_id, offset, wanted, matches, _SIZE_MAX)
        if result.count:
            try:
                self._hand_out(queue, offset, result, header, answer)
            except StoreError as error:
                log.error(
                    "nothing is popped, the pop cannot be written down %s reason=%s", queue, error
                )
                answer.failure = error
                answer.rest += max(0, result.max_offset - offset)
                return None
        elif result.status in _SKIPPED and result.next_offset > offset:
            if header.order:
                self._offsets.place(group, topic, queue_id, result.next_offset)
            else:
                self._pop.log.moved(queue, result.next_offset)
        answer.rest += max(0, result.max_offset - result.next_offset)
        return (result.count, result.next_offset) if offset == begin else None

    def _hand_out(
        self,
        queue: QueueOf,
        offset: int,
        result: ReadResult,
        header: PopMessageHeader,
        answer: _Answer,
    ) -> None:
        """Write down what goes out (invariants 1, 4) and add it. Raises: StoreError."""
        group, topic, queue_id = queue
        offsets = [found for buffer in result.buffers for found in _queue_offsets(buffer)]
        broker_name = self._config.broker_name
        if header.order:
            times = self._pop.order.popped(
                queue, header.attempt_id, answer.pop_ms, header.invisible_time, offsets
            )
            self._offsets.place(group, topic, queue_id, offset)
            self._pop.log.state.move(queue, offset)
            flag = retry_flag(topic)
            answer.order_info += [f"{flag} qo{queue_id}%{o} {count}" for o, count in times.items()]
            lowest = min((times.get(o, 0) for o in offsets), default=0)
            answer.order_info.append(f"{flag} {queue_id} {lowest}")
        else:
            name = Name(topic, group, queue_id, offset, answer.pop_ms, broker_name)
            point = self._pop.log.check_point(
                name, header.invisible_time, offsets, answer.revive_queue
            )
            self._pop.log.moved(queue, result.next_offset, point)
        answer.start_info.append(offsets_info(topic, queue_id, [offset]))
        answer.offset_info.append(offsets_info(topic, queue_id, offsets))
        answer.count += len(offsets)
        if topic == header.topic:
            answer.buffers += result.buffers
            answer.size += result.size
            return
        receipt = Receipt(
            offset,
            answer.pop_ms,
            header.invisible_time,
            answer.revive_queue,
            retry_flag(topic),
            broker_name,
            queue_id,
        )
        for buffer in result.buffers:
            again = _under_its_own_name(buffer, header.topic, receipt)
            answer.buffers.append(again)
            answer.size += len(again)

    def _has_message(self, topic: str, queue_id: int, header: NotificationHeader) -> bool:
        queue = QueueOf(header.consumer_group, topic, queue_id)
        if header.order and self._pop.order.is_blocked(queue, header.attempt_id):
            return False
        offset = self._pop.log.state.next_offset(queue, self._offsets.query(*queue))
        if offset < 0:
            offset = self._store.min_offset(topic, queue_id)
        return self._store.max_offset(topic, queue_id) > offset

    # ------------------------------------------------------------ waiting

    def _hold(
        self,
        polling: PopPolling,
        request: RemotingCommand,
        connection: Connection,
        header: PopMessageHeader | NotificationHeader,
        matches: EntryFilter | None,
        properties: Callable[[bytes], bool] | None,
    ) -> ResponseCode | None:
        """Let a pop wait (invariant 3). Returns: what it is answered when it cannot, else None."""
        if header.poll_time <= 0 or polling.closing:
            return ResponseCode.POLLING_TIMEOUT
        queue = QueueOf(header.consumer_group, header.topic, header.queue_id)
        if not polling.has_room(queue):
            log.warning("too many pops wait, one is sent away %s", queue)
            return ResponseCode.POLLING_FULL
        left_ms = header.born_time + header.poll_time - self._clock.now_ms()
        if left_ms < _HOLD_MIN_MS:
            return ResponseCode.POLLING_TIMEOUT
        deadline_ms = self._clock.monotonic_ms() + min(left_ms, header.poll_time)
        again = partial(self._again, request, connection)
        polling.hold(queue, HeldRequest(again, connection, matches, deadline_ms, properties))
        return None


def _refused(request: RemotingCommand, code: ResponseCode, remark: str) -> RemotingCommand:
    """An answer without messages; pops have these fields in every answer."""
    if request.code in (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE):
        return request.answer(code, remark, PopMessageResponseHeader(0, 0, 0, 0).ext())
    return request.answer(code, remark)


def _filter(header: PopMessageHeader) -> EntryFilter | None:
    """What the pop lets through; None: everything. Raises: IllegalArgument, SelectorError."""
    if not header.exp:
        return None
    subscription = build_subscription(header.topic, header.exp, header.exp_type)
    if subscription.is_tag:
        return None if subscription.is_all else TagFilter.of(subscription)
    return ExpressionMessageFilter(
        ConsumerFilterData(
            group=header.consumer_group,
            topic=header.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            bloom=None,
            client_version=0,
            born_ms=0,
            dead_ms=0,
            compiled=compile_expression(subscription.sub_string),
        )
    )


def _as_pull(header: PopMessageHeader, queue: QueueOf, offset: int) -> PullMessageHeader:
    """The pop of one queue as the record of deliveries knows pulls: filtered by what it brings."""
    return PullMessageHeader(
        queue.group,
        queue.topic,
        queue.queue_id,
        offset,
        header.max_msg_nums,
        int(PullSysFlag.SUBSCRIPTION),
        0,
        0,
        0,
        header.exp,
        header.exp_type,
    )


def _queue_offsets(buffer: memoryview) -> list[int]:
    """The queue offsets of the records in a slice of the log."""
    found: list[int] = []
    at, end = 0, len(buffer)
    while at < end:
        found.append(queue_offset_of(buffer, at))
        at += size_of(buffer, at)
    return found


def _under_its_own_name(buffer: memoryview, topic: str, receipt: Receipt) -> bytes:
    """Records of a retry topic as the client sees them (invariant 2)."""
    records: list[bytes] = []
    for record in read_records(buffer):
        properties = record.properties
        if get_property(properties, b"POP_CK") is None:
            text = str(receipt._replace(queue_offset=record.queue_offset))
            properties = add_property(properties, b"POP_CK", text.encode())
        # Java's clients of 4.9 read no other layout, and the topic's own name needs none.
        records.append(
            write_record(record._replace(magic=MAGIC_V1, topic=topic, properties=properties))
        )
    return b"".join(records)
