"""Popping: the broker hands out messages by their own time, and knows what is out.

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor, RocketMQ
5.3.3.

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
from dataclasses import dataclass, field
from typing import NamedTuple

from pocketmq.broker.held_request import HeldRequest
from pocketmq.broker.parts import Members, Messages, Node, Tables
from pocketmq.broker.pop.check_point import OFFSETS_MAX, Name
from pocketmq.broker.pop.pop_polling import PopPolling
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.pull_filter import properties_filter
from pocketmq.broker.refused import Refused
from pocketmq.broker.sql92 import SelectorError, compile_expression
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.broker.tag_filter import TagFilter
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import Perm, PullSysFlag
from pocketmq.remoting.headers import (
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageHeader,
    PullMessageHeader,
)
from pocketmq.remoting.message_codec import add_property, get_property
from pocketmq.remoting.names import FAQ, RETRY_PREFIX
from pocketmq.remoting.peer import Peer
from pocketmq.remoting.pop_receipt import (
    INVISIBLE_MS_MAX,
    ORDER_REVIVE_QUEUE,
    Receipt,
    offsets_info,
    pop_retry_topic,
    retry_flag,
)
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

_Ask = PopMessageHeader | PeekMessageHeader | NotificationHeader | PollingInfoHeader


@dataclass(slots=True)
class Popped:
    """What one pop has found. buffers: whole records; the infos: as the answer's fields have them."""

    pop_ms: int = 0
    revive_queue: int = 0
    code: ResponseCode = ResponseCode.SUCCESS
    count: int = 0
    size: int = 0
    rest: int = 0
    buffers: list[memoryview | bytes] = field(default_factory=list)
    start_info: list[str] = field(default_factory=list)
    offset_info: list[str] = field(default_factory=list)
    order_info: list[str] = field(default_factory=list)
    failure: StoreError | None = None


class Notified(NamedTuple):
    """Whether there is something to pop; full: too many ask already, so nobody waits for it."""

    has_message: bool
    full: bool


class PopActs:
    """Pop, peek, notify, and how many wait."""

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

    # ------------------------------------------------------------ the requests

    def pop(self, ask: PopMessageHeader, peer: Peer, again: Callable[[], None]) -> Popped | None:
        """Hand out messages; None: it waits, and `again` is called when it is to be asked once more.

        Raises: Refused.
        """
        began_ms = self._clock.monotonic_ms()
        if self._clock.now_ms() - ask.born_time - ask.poll_time > _TOO_LATE_MS:
            remark = f"the broker[{self._config.broker_ip1}] pop message is timeout too much"
            raise Refused(ResponseCode.POLLING_TIMEOUT, remark)
        ask.invisible_time = min(max(0, ask.invisible_time), INVISIBLE_MS_MAX)
        if ask.max_msg_nums > OFFSETS_MAX:
            remark = f"the broker[{self._config.broker_ip1}] pop message's num is greater than 32"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        self._check(ask, peer, "pop")
        self._check_ours(ask, peer)
        matches = _filter(ask)
        found = self._take(ask, matches, peer)
        if found.count:
            counter = self._stats.get_counter(ask.consumer_group, ask.topic, ask.queue_id)
            counter.nums += found.count
            counter.size += found.size
            counter.calls += 1
            counter.latency_ms += self._clock.monotonic_ms() - began_ms
            if found.rest > 0:
                self._pop.polling.wake(ask.consumer_group, ask.topic, ask.queue_id)
            self._pop.wake()
            return found
        if found.failure is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(found.failure))
        code = self._hold(self._pop.polling, ask, matches, peer, again)
        if code is None:
            return None
        found.code = code
        return found

    def notify(
        self, ask: NotificationHeader, peer: Peer, again: Callable[[], None]
    ) -> Notified | None:
        """Whether there is something to pop; None: it waits, as a pop does. Raises: Refused."""
        self._check(ask, peer, "peeking")
        queues = self._queues(ask.topic, ask.consumer_group, ask.queue_id)
        if any(self._has_message(topic, queue_id, ask) for topic, queue_id in queues):
            return Notified(True, False)
        code = self._hold(self._pop.notifications, ask, None, peer, again)
        return None if code is None else Notified(False, code == ResponseCode.POLLING_FULL)

    def peek(self, ask: PeekMessageHeader, peer: Peer) -> Popped:
        """What the group's next pop might get; nothing changes. Raises: Refused."""
        self._check(ask, peer, "peeking")
        found = Popped()
        group = ask.consumer_group
        for topic, queue_id in self._queues(ask.topic, group, ask.queue_id):
            committed = self._offsets.query(group, topic, queue_id)
            offset = self._pop.log.state.next_offset(QueueOf(group, topic, queue_id), committed)
            if offset < 0:
                offset = self._store.min_offset(topic, queue_id)
            found.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            wanted = min(ask.max_msg_nums, OFFSETS_MAX) - found.count
            if wanted > 0:
                result = self._store.read(topic, queue_id, offset, wanted, None, _SIZE_MAX)
                if result.status in _WRONG_PLACE:
                    offset = result.next_offset
                    result = self._store.read(topic, queue_id, offset, wanted, None, _SIZE_MAX)
                found.count += result.count
                found.size += result.size
                found.buffers += result.buffers
        return found

    def waiting(self, ask: PollingInfoHeader, peer: Peer) -> int:
        """How many pops wait. Raises: Refused."""
        self._check(ask, peer, "peeking")
        return self._pop.polling.polling(QueueOf(ask.consumer_group, ask.topic, ask.queue_id))

    # ------------------------------------------------------------ before it

    def _check_ours(self, ask: PopMessageHeader, peer: Peer) -> None:
        """What we refuse beside RocketMQ's checks. Raises: Refused."""
        group = ask.consumer_group
        if not ask.order:
            fault = self._pop.revive.fault(ask.topic, group)
            if fault is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        remark = self._policies.of(group).pop_refusal(group, peer)
        if remark is not None:
            log.warning("pop refused peer=%s reason=%r", peer.address, remark)
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    def _check(self, ask: _Ask, peer: Peer, what: str) -> None:
        """RocketMQ's checks in its order. Raises: Refused."""
        config, name, group = self._config, ask.topic, ask.consumer_group
        if not config.broker_permission & Perm.READ:
            remark = f"the broker[{config.broker_ip1}] {what} message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(name)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", name[:300], peer.address)
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.readable:
            remark = f"the topic[{name}] peeking message is forbidden"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        if ask.queue_id >= topic.read_queues:
            remark = (
                f"queueId[{ask.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer.address}]"
            )
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        found = self._groups.find(group)
        if found is None:
            remark = f"subscription group [{group}] does not exist, {FAQ}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not found.consume_enable:
            remark = f"subscription group no permission, {group}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)

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
        count = 0 if found is None else found.read_queues
        return [(chance + number) % count for number in range(count)]

    def _take(self, ask: PopMessageHeader, matches: EntryFilter | None, peer: Peer) -> Popped:
        """Hand out up to maxMsgNums messages."""
        order = bool(ask.order)
        revive_queue = ORDER_REVIVE_QUEUE if order else self._pop.log.turn()
        found = Popped(self._clock.now_ms(), revive_queue)
        topic, group = ask.topic, ask.consumer_group
        for name, queue_id in self._queues(topic, group, ask.queue_id, retry=not order):
            queue = QueueOf(group, name, queue_id)
            if order and self._pop.order.is_blocked(queue, ask.attempt_id):
                continue
            offset = self._begin(queue, ask.init_mode)
            wanted = max(1, ask.max_msg_nums) - found.count
            if wanted <= 0 or found.failure is not None:
                found.rest += max(0, self._store.max_offset(name, queue_id) - offset)
                continue
            following = self._take_from(queue, offset, wanted, ask, matches, found)
            if following is not None:
                count, end = following
                self._deliveries.pulled(
                    _as_pull(ask, queue, offset),
                    peer,
                    matches,
                    end,
                    count,
                    self._clock.monotonic_ms(),
                )
        return found

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
        ask: PopMessageHeader,
        matches: EntryFilter | None,
        found: Popped,
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
                self._hand_out(queue, offset, result, ask, found)
            except StoreError as error:
                log.error(
                    "nothing is popped, the pop cannot be written down %s reason=%s", queue, error
                )
                found.failure = error
                found.rest += max(0, result.max_offset - offset)
                return None
        elif result.status in _SKIPPED and result.next_offset > offset:
            if ask.order:
                self._offsets.place(group, topic, queue_id, result.next_offset)
            else:
                self._pop.log.moved(queue, result.next_offset)
        found.rest += max(0, result.max_offset - result.next_offset)
        return (result.count, result.next_offset) if offset == begin else None

    def _hand_out(
        self,
        queue: QueueOf,
        offset: int,
        result: ReadResult,
        ask: PopMessageHeader,
        found: Popped,
    ) -> None:
        """Write down what goes out (invariants 1, 4) and add it. Raises: StoreError."""
        group, topic, queue_id = queue
        offsets = [found for buffer in result.buffers for found in _queue_offsets(buffer)]
        broker_name = self._config.broker_name
        if ask.order:
            times = self._pop.order.popped(
                queue, ask.attempt_id, found.pop_ms, ask.invisible_time, offsets
            )
            self._offsets.place(group, topic, queue_id, offset)
            self._pop.log.state.move(queue, offset)
            flag = retry_flag(topic)
            found.order_info += [f"{flag} qo{queue_id}%{o} {count}" for o, count in times.items()]
            lowest = min((times.get(o, 0) for o in offsets), default=0)
            found.order_info.append(f"{flag} {queue_id} {lowest}")
        else:
            name = Name(topic, group, queue_id, offset, found.pop_ms, broker_name)
            point = self._pop.log.check_point(name, ask.invisible_time, offsets, found.revive_queue)
            self._pop.log.moved(queue, result.next_offset, point)
        found.start_info.append(offsets_info(topic, queue_id, [offset]))
        found.offset_info.append(offsets_info(topic, queue_id, offsets))
        found.count += len(offsets)
        if topic == ask.topic:
            found.buffers += result.buffers
            found.size += result.size
            return
        receipt = Receipt(
            offset,
            found.pop_ms,
            ask.invisible_time,
            found.revive_queue,
            retry_flag(topic),
            broker_name,
            queue_id,
        )
        for buffer in result.buffers:
            again = _under_its_own_name(buffer, ask.topic, receipt)
            found.buffers.append(again)
            found.size += len(again)

    def _has_message(self, topic: str, queue_id: int, ask: NotificationHeader) -> bool:
        queue = QueueOf(ask.consumer_group, topic, queue_id)
        if ask.order and self._pop.order.is_blocked(queue, ask.attempt_id):
            return False
        offset = self._pop.log.state.next_offset(queue, self._offsets.query(*queue))
        if offset < 0:
            offset = self._store.min_offset(topic, queue_id)
        return self._store.max_offset(topic, queue_id) > offset

    # ------------------------------------------------------------ waiting

    def _hold(
        self,
        polling: PopPolling,
        ask: PopMessageHeader | NotificationHeader,
        matches: EntryFilter | None,
        peer: Peer,
        again: Callable[[], None],
    ) -> ResponseCode | None:
        """Let a pop wait (invariant 3). Returns: what it is answered when it cannot, else None."""
        if ask.poll_time <= 0 or polling.closing:
            return ResponseCode.POLLING_TIMEOUT
        queue = QueueOf(ask.consumer_group, ask.topic, ask.queue_id)
        if not polling.has_room(queue):
            log.warning("too many pops wait, one is sent away %s", queue)
            return ResponseCode.POLLING_FULL
        left_ms = ask.born_time + ask.poll_time - self._clock.now_ms()
        if left_ms < _HOLD_MIN_MS:
            return ResponseCode.POLLING_TIMEOUT
        deadline_ms = self._clock.monotonic_ms() + min(left_ms, ask.poll_time)
        held = HeldRequest(again, peer, matches, deadline_ms, properties_filter(matches))
        polling.hold(queue, held)
        return None


def _filter(ask: PopMessageHeader) -> EntryFilter | None:
    """What the pop lets through; None: everything. Raises: Refused."""
    try:
        return _made_filter(ask)
    except (IllegalArgument, SelectorError) as error:
        log.warning(
            "the subscription of a pop cannot be read group=%s expression=%r reason=%s",
            ask.consumer_group,
            (ask.exp or "")[:300],
            error,
        )
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
        ) from error


def _made_filter(ask: PopMessageHeader) -> EntryFilter | None:
    if not ask.exp:
        return None
    subscription = build_subscription(ask.topic, ask.exp, ask.exp_type)
    if subscription.is_tag:
        return None if subscription.is_all else TagFilter.of(subscription)
    return ExpressionMessageFilter(
        ConsumerFilterData(
            group=ask.consumer_group,
            topic=ask.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            bloom=None,
            client_version=0,
            born_ms=0,
            dead_ms=0,
            compiled=compile_expression(subscription.sub_string),
        )
    )


def _as_pull(ask: PopMessageHeader, queue: QueueOf, offset: int) -> PullMessageHeader:
    """The pop of one queue as the record of deliveries knows pulls: filtered by what it brings."""
    return PullMessageHeader(
        queue.group,
        queue.topic,
        queue.queue_id,
        offset,
        ask.max_msg_nums,
        int(PullSysFlag.SUBSCRIPTION),
        0,
        0,
        0,
        ask.exp,
        ask.exp_type,
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
