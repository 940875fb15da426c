"""Receipts: acknowledge a popped message, or change its invisible time.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor, RocketMQ 5.3.3.

1. An acknowledgement is in the revive log before it is answered; with SYNC_FLUSH, on the disk: an act
   returns the position up to which the log must be there.
2. A receipt that is not valid any more (the message was acknowledged, or its time is over) is no error for
   an acknowledgement, as in RocketMQ. Ours: changing its time is refused with 208, where RocketMQ would
   redeliver an acknowledged message.
3. Changing the invisible time writes a new check point for that message, then acknowledges the old one. Its
   pop time is later than the old one's, within the same millisecond, too: two of one name would be one.
4. A client that acknowledges twice within the invisible time, because the answer was lost, gets success
   twice, as from the proxy of 5.5. A receipt whose message has another one since (invariant 3) is not valid;
   the latest CHANGED_MAX of those are remembered, but not over a restart: such a message is redelivered.
"""

import logging
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from pocketmq.broker.groups.starts import SEPARATOR
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.pop.check_point import MOMENT_MS, CheckPointName
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.service import PopService
from pocketmq.broker.refused import Refused
from pocketmq.model.names import FAQ
from pocketmq.model.pop_receipt import INVISIBLE_MS_MAX, ORDER_REVIVE_QUEUE, Receipt
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

CHANGED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Acknowledged messages of one check point, relative to the receipt's start offset."""

    queue: GroupQueue
    receipt: Receipt
    places: list[int]


@dataclass(frozen=True, slots=True)
class Postponed:
    """The fields of the new receipt; end: the log position to flush before answering, None if not needed."""

    pop_ms: int
    invisible_ms: int
    revive_queue: int
    end: int | None


class ReceiptActs:
    """Acknowledge messages and change their invisible time."""

    def __init__(self, node: Node, tables: Tables, messages: Messages, pop: PopService) -> None:
        self._config = node.config
        self._clock = node.clock
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._store = messages.store
        self._pop = pop
        # Receipts that were replaced by another.
        self._changed: dict[tuple[CheckPointName, int], None] = {}

    def ack(self, queue: GroupQueue, offset: int, receipt_text: str, peer: Peer) -> int | None:
        """Acknowledge one message. Returns: see invariant 1. Raises: Refused."""
        self._check(queue, peer)
        low, high = self._bounds(queue)
        if not low <= offset <= high:
            remark = (
                f"offset is illegal, key:{queue.topic}@{queue.queue_id}, commit:{offset}, "
                f"store:{low}~{high}"
            )
            log.warning("%s", remark)
            raise Refused(ResponseCode.NO_MESSAGE, remark)
        receipt = Receipt.parse(receipt_text)
        if receipt.is_order:
            return self._ack_in_order(queue, [offset], receipt.pop_ms, peer)
        return self._ack(self._name(queue, receipt), [offset], receipt.revive_queue)

    def done(
        self, queue: GroupQueue, receipt: Receipt, offsets: Iterable[int], peer: Peer
    ) -> tuple[set[int], int | None]:
        """Messages that one pop took out of one queue are done, as far as the receipt is valid (invariant 4).

        Returns: those offsets, and see invariant 1. Raises: Refused.
        """
        self._check(queue, peer)
        asked = set(offsets)
        if receipt.is_order:
            is_out = self._pop.order.is_out
            found = {offset for offset in asked if is_out(queue, offset, receipt.pop_ms)}
            end = self._ack_in_order(queue, found, receipt.pop_ms, peer)
            return found | self._done_before(queue, receipt, asked - found), end
        name = self._name(queue, receipt)
        point = self._pop.log.state.get(name)
        if point is not None:
            found = {offset for offset in asked if point.is_out(offset)}
        else:
            found = {offset for offset in asked if self._is_out(name, offset, receipt)}
        end = self._ack(name, found, receipt.revive_queue) if found else None
        if len(found) == len(asked):
            return found, end
        # The first acknowledgement may still be on its way to the disk.
        return found | self._done_before(queue, receipt, asked - found), end or self._pop.log.end

    def _done_before(self, queue: GroupQueue, receipt: Receipt, offsets: set[int]) -> set[int]:
        """Return the offsets that were acknowledged under this receipt, while its time is not over."""
        if receipt.pop_ms + receipt.invisible_ms <= self._clock.now_ms():
            return set()
        low, high = self._bounds(queue)
        stored = {offset for offset in offsets if low <= offset < high}
        if receipt.is_order:
            committed, is_acked = self._offsets.query(*queue), self._pop.order.is_acked
            return {
                offset
                for offset in stored
                if offset < committed or is_acked(queue, offset, receipt.pop_ms)
            }
        name = self._name(queue, receipt)
        return {offset for offset in stored if (name, offset) not in self._changed}

    def ack_many(
        self, acks: Sequence[Acknowledged], peer: Peer
    ) -> Generator[None, None, int | None]:
        """Acknowledge messages of any number of check points, in steps. Returns: see invariant 1.

        Raises: Refused, after everything that can be acknowledged has been.
        """
        end: int | None = None
        refused: Refused | None = None
        for each in acks:
            yield
            queue, receipt = each.queue, each.receipt
            known = self._topics.get(queue.topic)
            if known is None or not 0 <= queue.queue_id < known.read_queues:
                log.error(
                    "ignored acks of a queue that does not exist topic=%s %s",
                    queue.topic[:300],
                    receipt,
                )
                continue
            low, high = self._bounds(queue)
            offsets = [receipt.start_offset + place for place in each.places]
            offsets = [offset for offset in offsets if low <= offset <= high]
            if receipt.revive_queue == ORDER_REVIVE_QUEUE:
                try:
                    end = self._ack_in_order(queue, offsets, receipt.pop_ms, peer) or end
                except Refused as error:
                    refused = error
                continue
            end = self._ack(self._name(queue, receipt), offsets, receipt.revive_queue) or end
        if refused is not None:
            raise refused
        return end

    def is_valid(self, queue: GroupQueue, offset: int, receipt: Receipt) -> bool:
        """Return True while the message is in flight under this receipt (invariant 2)."""
        if receipt.is_order:
            return self._pop.order.is_out(queue, offset, receipt.pop_ms)
        return self._is_out(self._name(queue, receipt), offset, receipt)

    def postpone(
        self,
        queue: GroupQueue,
        offset: int,
        receipt_text: str,
        invisible_ms: int,
        peer: Peer,
        *,
        suspend: bool = False,
    ) -> Postponed | None:
        """Make a message visible in `invisible_ms` from now (invariant 3); None if it is done already.

        suspend: the client did not try to consume it, so it counts as no attempt (5.5). Raises: Refused.
        """
        self._check(queue, peer)
        low, high = self._bounds(queue)
        if not low <= offset < high:
            raise Refused(ResponseCode.NO_MESSAGE)
        receipt = Receipt.parse(receipt_text)
        now = self._clock.now_ms()
        invisible_ms = min(max(0, invisible_ms), INVISIBLE_MS_MAX)
        if receipt.is_order:
            if offset < self._offsets.query(*queue):
                return None
            pop_ms = receipt.pop_ms
            try:
                self._pop.order_log.postpone(
                    queue, offset, pop_ms, now + invisible_ms, untried=suspend
                )
            except StoreError as error:
                raise _not_stored("change an invisible time", queue, error) from error
            left_ms = now + invisible_ms - pop_ms
            return Postponed(pop_ms, left_ms, receipt.revive_queue, self._pop.log.end)
        old = self._name(queue, receipt)
        if not self._is_out(old, offset, receipt):
            raise Refused(
                ResponseCode.NO_MESSAGE,
                "the message is no longer invisible: it was acknowledged, or its time is over, "
                f"key:{queue.topic}@{queue.queue_id}, offset:{offset}",
            )
        new = self._replace(old, offset, now, invisible_ms, receipt, suspend=suspend)
        self._pop.wake()
        return Postponed(new.pop_ms, invisible_ms, receipt.revive_queue, self._pop.log.end)

    def _replace(
        self,
        old: CheckPointName,
        offset: int,
        now: int,
        invisible_ms: int,
        receipt: Receipt,
        *,
        suspend: bool,
    ) -> CheckPointName:
        """Apply invariant 3. Returns: the new check point's name. Raises: Refused."""
        # A receipt of a clock that ran far ahead is not followed there.
        is_of_now = now <= old.pop_ms < now + MOMENT_MS
        pop_ms = old.pop_ms + 1 if is_of_now else now
        new = self._pop.log.free_name(
            CheckPointName(old.topic, old.group, old.queue_id, offset, pop_ms, receipt.broker_name)
        )
        revive_queue = receipt.revive_queue
        try:
            self._pop.log.check_point(
                new, invisible_ms, [offset], revive_queue, again=True, suspend=suspend
            )
        except StoreError as error:
            raise _not_stored("change an invisible time", old, error) from error
        try:
            self._pop.log.ack(old, [offset], revive_queue)
        except StoreError as error:
            log.error("cannot write off a check point that was changed %s reason=%s", old, error)
            self._pop.log.ack_unwritten(old, [offset], revive_queue)
        changed = self._changed
        changed[old, offset] = None
        if len(changed) > CHANGED_MAX:
            del changed[next(iter(changed))]
        return new

    # ------------------------------------------------------------ what they share

    def _check(self, queue: GroupQueue, peer: Peer) -> None:
        topic = self._topics.get(queue.topic)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", queue.topic[:300], peer.address)
            remark = f"topic[{queue.topic}] not exist, apply first please! {FAQ}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= queue.queue_id < topic.read_queues:
            remark = (
                f"queueId[{queue.queue_id}] is illegal, topic:[{queue.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer.address}]"
            )
            log.warning("%s", remark)
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def _bounds(self, queue: GroupQueue) -> tuple[int, int]:
        topic, queue_id = queue.topic, queue.queue_id
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def _name(self, queue: GroupQueue, receipt: Receipt) -> CheckPointName:
        return CheckPointName(
            queue.topic,
            queue.group,
            queue.queue_id,
            receipt.start_offset,
            receipt.pop_ms,
            receipt.broker_name or self._config.broker_name,
        )

    def _ack(self, name: CheckPointName, offsets: Iterable[int], revive_queue: int) -> int | None:
        asked = set(offsets)
        point = self._pop.log.state.get(name)
        done = sum(map(point.is_out, asked)) if point is not None else len(asked)
        try:
            end = self._pop.log.ack(name, sorted(asked), revive_queue)
        except StoreError as error:
            raise _not_stored("store an acknowledgement", name, error) from error
        if end is not None and done:
            self._offsets.consumed.add(f"{name.topic}{SEPARATOR}{name.group}", done)
        return end

    def _is_out(self, name: CheckPointName, offset: int, receipt: Receipt) -> bool:
        """Return True while a receipt is valid."""
        point = self._pop.log.state.get(name)
        if point is not None:
            return point.is_out(offset)
        # An Apache broker's timer may still hold the check point, unreadable here: believe the client.
        return (
            self._pop.log.may_be_hidden(name, receipt.revive_queue)
            and name.pop_ms + receipt.invisible_ms > self._clock.now_ms()
        )

    def _ack_in_order(
        self, queue: GroupQueue, offsets: Iterable[int], pop_ms: int, peer: Peer
    ) -> int | None:
        """Acknowledge messages of an orderly pop. Returns: see invariant 1. Raises: Refused."""
        old, end = self._offsets.query(*queue), self._bounds(queue)[1]
        offsets = [offset for offset in offsets if old <= offset < end]
        if not offsets:
            return None
        try:
            wrong = self._pop.order_log.done(queue, offsets, pop_ms)
        except StoreError as error:
            raise _not_stored("store an acknowledgement", queue, error) from error
        if wrong:
            group, topic, queue_id = queue
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, commit:{wrong[-1]}, "
                f"next:-1, {peer.address}"
            )
            log.warning("%s", remark)
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        return self._pop.log.end


def _not_stored(what: str, of: GroupQueue | CheckPointName, error: StoreError) -> Refused:
    log.error("cannot %s %s reason=%s", what, of, error)
    return Refused(ResponseCode.SYSTEM_ERROR, str(error))
