"""Taking: what a pop takes from the queues it looks at, logged before it is handed out.

Source: PopMessageProcessor, RocketMQ 5.3.3. The numbers refer to the invariants of acts/pop.py.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pocketmq.books.rows import EventKind
from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.pop.check_point import OFFSETS_MAX, CheckPointName
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.service import PopService
from pocketmq.model.message_codec import add_property, remove_property
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.model.pop_receipt import (
    ORDER_REVIVE_QUEUE,
    Receipt,
    offsets_info,
    pop_retry_topic,
    retry_flag,
)
from pocketmq.model.record import MAGIC_V1, queue_offset_of, read_records, size_of, write_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import PeekMessageHeader, PopMessageHeader, PullMessageHeader
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import EntryFilter, ReadResult, ReadStatus, StoreError

log = logging.getLogger(__name__)

FROM_MIN = 0
_SIZE_MAX = 262_144
_WRONG_PLACE = (
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_FOUND_NULL,
)
_SKIPPED = (ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING)


@dataclass(slots=True)
class Popped:
    """The result of one pop. buffers: whole records; the infos: as the response's fields have them."""

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
    # The filter let nothing through, and not all was looked at.
    is_unfinished: bool = False


class PopTaking:
    """Takes from queues for pops, and looks into them for peeks."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        pop: PopService,
        random_below: Callable[[int], int],
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._store = messages.store
        self._deliveries = messages.deliveries
        self._begins_on_disk = messages.reach.begins_on_disk
        self._pop = pop
        self._random_below = random_below

    def queues(
        self, topic: str, group: str, queue_id: int, *, retry: bool = True
    ) -> list[tuple[str, int]]:
        """Return the queues that a pop looks at, in this pop's order (invariant 1)."""
        chance = self._random_below(100)
        own = [queue_id] if queue_id >= 0 else self._in_turn(topic, chance)
        found = self._topics.get(topic)
        # Urgent messages come before failed ones; an orderly pop, without retry topics, keeps its turns.
        by_priority = retry and found is not None and found.by_priority
        if by_priority:
            own.sort(reverse=True)
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
        first = not by_priority and chance < self._config.pop_from_retry_probability
        return again + queues if first else queues + again

    def _in_turn(self, topic: str, chance: int) -> list[int]:
        found = self._topics.get(topic)
        count = 0 if found is None else found.read_queues
        return [(chance + number) % count for number in range(count)]

    def take(self, ask: PopMessageHeader, matches: EntryFilter | None, peer: Peer) -> Popped:
        """Hand out up to maxMsgNums messages."""
        order = bool(ask.order)
        revive_queue = ORDER_REVIVE_QUEUE if order else self._pop.log.turn()
        found = Popped(self._clock.now_ms(), revive_queue)
        topic, group = ask.topic, ask.consumer_group
        for name, queue_id in self.queues(topic, group, ask.queue_id, retry=not order):
            queue = GroupQueue(group, name, queue_id)
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

    def _begin(self, queue: GroupQueue, init_mode: int) -> int:
        """Return the group's next offset in a queue, initialising it if absent."""
        group, topic, queue_id = queue
        committed = self._offsets.query(group, topic, queue_id)
        offset = self._pop.log.state.next_offset(queue, committed)
        if offset >= 0:
            self._pop.log.state.begin(queue, offset)
            return offset
        offset = self._store.min_offset(topic, queue_id)
        from_max = init_mode != FROM_MIN and not topic.startswith(RETRY_PREFIX)
        # As for a pull consumer's CONSUME_FROM_LAST_OFFSET: a young queue is read from its beginning.
        if from_max and (offset > 0 or self._begins_on_disk(topic, queue_id)):
            offset = max(0, self._store.max_offset(topic, queue_id) - 1)
        self._offsets.place(group, topic, queue_id, offset)
        self._deliveries.started(queue, offset)
        return offset

    def _take_from(
        self,
        queue: GroupQueue,
        offset: int,
        wanted: int,
        ask: PopMessageHeader,
        matches: EntryFilter | None,
        found: Popped,
    ) -> tuple[int, int] | None:
        """Take messages from one queue. Returns: their count and the group's next offset; None if `offset`
        was wrong or nothing could be logged.
        """
        group, topic, queue_id = queue
        begin = offset
        store = self._store
        result = store.reads.read(topic, queue_id, offset, wanted, matches, _SIZE_MAX)
        if result.status in _WRONG_PLACE:
            log.warning(
                "pop: the offset is outside the queue %s %d->%d", queue, offset, result.next_offset
            )
            if result.status is ReadStatus.OFFSET_TOO_SMALL:
                self._deliveries.event(EventKind.EXPIRED, queue, offset, result.next_offset, "")
            offset = result.next_offset
            self._pop.log.reset(queue, offset)
            self._offsets.place(group, topic, queue_id, offset)
            result = store.reads.read(topic, queue_id, offset, wanted, matches, _SIZE_MAX)
        if result.count and not self._has_name(queue, offset, found, order=bool(ask.order)):
            found.rest += max(0, result.max_offset - offset)
            return None
        if result.count:
            try:
                self._hand_out(queue, offset, result, ask, found)
            except StoreError as error:
                log.error(
                    "cannot store a pop's check point, nothing is popped %s reason=%s", queue, error
                )
                found.failure = error
                found.rest += max(0, result.max_offset - offset)
                return None
        elif result.status in _SKIPPED and result.next_offset > offset:
            if ask.order:
                self._offsets.place(group, topic, queue_id, result.next_offset)
            else:
                self._pop.log.moved(queue, result.next_offset)
            found.is_unfinished |= result.next_offset < result.max_offset
        if not ask.order or not result.count:
            passed_over = result.next_offset - offset - result.count
            if passed_over > 0:
                self._offsets.consumed.add(f"{topic}{SEPARATOR}{group}", passed_over)
        found.rest += max(0, result.max_offset - result.next_offset)
        return (result.count, result.next_offset) if offset == begin else None

    def _has_name(self, queue: GroupQueue, offset: int, found: Popped, *, order: bool) -> bool:
        """Make sure that this pop's messages of the queue can be distinguished from an earlier pop's.

        Only a reset or a return within a millisecond leads here twice. Returns: False if the queue has to
        wait for the next pop, because this one has handed out others' messages at its time.
        """
        broker_name = self._config.broker_name
        while True:
            if order:
                taken = self._pop.order.popped_ms(queue) == found.pop_ms
            else:
                group, topic, queue_id = queue
                name = CheckPointName(topic, group, queue_id, offset, found.pop_ms, broker_name)
                taken = self._pop.log.is_taken(name)
            if not taken or found.count:
                return not taken
            found.pop_ms += 1

    def _hand_out(
        self,
        queue: GroupQueue,
        offset: int,
        result: ReadResult,
        ask: PopMessageHeader,
        found: Popped,
    ) -> None:
        """Log what is handed out (invariants 1, 4) and add it. Raises: StoreError."""
        group, topic, queue_id = queue
        if result.count == result.next_offset - offset:
            offsets = list(range(offset, result.next_offset))
        else:
            offsets = [each for buffer in result.buffers for each in _queue_offsets(buffer)]
        broker_name = self._config.broker_name
        if ask.order:
            times = self._pop.order_log.popped(
                queue, ask.attempt_id, found.pop_ms, ask.invisible_time, offsets, offset
            )
            flag = retry_flag(topic)
            found.order_info += [f"{flag} qo{queue_id}%{o} {count}" for o, count in times.items()]
            lowest = min((times.get(o, 0) for o in offsets), default=0)
            found.order_info.append(f"{flag} {queue_id} {lowest}")
        else:
            name = CheckPointName(topic, group, queue_id, offset, found.pop_ms, broker_name)
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

    def look(self, ask: PeekMessageHeader) -> Popped:
        """Return what the group's next pop might get; nothing changes."""
        found = Popped()
        group = ask.consumer_group
        for topic, queue_id in self.queues(ask.topic, group, ask.queue_id):
            committed = self._offsets.query(group, topic, queue_id)
            offset = self._pop.log.state.next_offset(GroupQueue(group, topic, queue_id), committed)
            if offset < 0:
                offset = self._store.min_offset(topic, queue_id)
            found.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            wanted = min(ask.max_msg_nums, OFFSETS_MAX) - found.count
            if wanted > 0:
                result = self._store.reads.read(topic, queue_id, offset, wanted, None, _SIZE_MAX)
                if result.status in _WRONG_PLACE:
                    offset = result.next_offset
                    result = self._store.reads.read(
                        topic, queue_id, offset, wanted, None, _SIZE_MAX
                    )
                found.count += result.count
                found.size += result.size
                found.buffers += result.buffers
        return found


def _as_pull(ask: PopMessageHeader, queue: GroupQueue, offset: int) -> PullMessageHeader:
    """Return the pop of one queue as a pull, for the delivery record: filtered by its own expression."""
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


def _queue_offsets(buffer: bytes | memoryview) -> list[int]:
    """Return the queue offsets of the records in a slice of the log."""
    found: list[int] = []
    at, end = 0, len(buffer)
    while at < end:
        found.append(queue_offset_of(buffer, at))
        at += size_of(buffer, at)
    return found


def _under_its_own_name(buffer: bytes | memoryview, topic: str, receipt: Receipt) -> bytes:
    """Rewrite a retry topic's records as the client sees them (invariant 2)."""
    records: list[bytes] = []
    # A body that does not match its CRC is the reader's to refuse: the others of this pop are handed out.
    for record in read_records(buffer, check_crc=False):
        text = str(receipt._replace(queue_offset=record.queue_offset))
        # A POP_CK that is already there is not of this pop: the sender's, or that of a copied record.
        properties = remove_property(record.properties, b"POP_CK")
        properties = add_property(properties, b"POP_CK", text.encode())
        # Java's clients of 4.9 read no other layout, and the topic's own name needs none.
        records.append(
            write_record(record._replace(magic=MAGIC_V1, topic=topic, properties=properties))
        )
    return b"".join(records)
