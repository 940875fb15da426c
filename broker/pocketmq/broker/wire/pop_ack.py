"""Receipts: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor, RocketMQ 5.3.3; wire.md 2.6.

1. An acknowledgement is in the revive log before it is answered; with SYNC_FLUSH, on the disk.
2. A receipt that is not valid any more (the message was acknowledged, or its time is over) is no error for
   an acknowledgement, as in RocketMQ. Ours: changing its time is refused with 208, where RocketMQ would
   hand out again what was acknowledged.
3. Other invisible time is a new check point for the one message, then an acknowledgement of the old.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from pocketmq.broker.parts import Messages, Node, Tables
from pocketmq.broker.pop.check_point import Name
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.broker.pop.receipt import (
    INVISIBLE_MS_MAX,
    ORDER_REVIVE_QUEUE,
    Receipt,
    real_topic,
)
from pocketmq.broker.pop.service import PopService
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection, Handler
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
)
from pocketmq.remoting.names import FAQ
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

# A pop looks at 65,536 entries of a queue at most.
_BITS_SIZE_MAX = 65_536 // 8
_Answer = RemotingCommand | Coroutine[Any, Any, RemotingCommand]


class PopAckProcessor:
    """Handlers of the three codes."""

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
        pop: PopService,
    ) -> None:
        self._config = node.config
        self._clock = node.clock
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._store = messages.store
        self._pop = pop

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    def ack(self, request: RemotingCommand, connection: Connection) -> _Answer:
        """ACK_MESSAGE: one message is done."""
        header = AckMessageHeader.parse(request.ext)
        refusal = self._refusal(request, connection, header)
        if refusal is not None:
            return refusal
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        low, high = self._bounds(topic, queue_id)
        if not low <= offset <= high:
            remark = (
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}"
            )
            log.warning("%s", remark)
            return request.answer(ResponseCode.NO_MESSAGE, remark)
        receipt = Receipt.parse(header.extra_info)
        if receipt.is_order:
            queue = QueueOf(header.consumer_group, topic, queue_id)
            remark_or_none = self._ack_in_order(queue, offset, receipt.pop_ms, connection)
            if remark_or_none is not None:
                return request.answer(ResponseCode.MESSAGE_ILLEGAL, remark_or_none)
            return request.answer(ResponseCode.SUCCESS)
        name = self._name(topic, header.consumer_group, queue_id, receipt)
        try:
            end = self._pop.log.ack(name, [offset], receipt.revive_queue)
        except StoreError as error:
            log.error("an acknowledgement is not stored %s reason=%s", name, error)
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        return self._when_stored(request, request.answer(ResponseCode.SUCCESS), end)

    def batch_ack(self, request: RemotingCommand, connection: Connection) -> _Answer:
        """BATCH_ACK_MESSAGE: messages of any number of check points are done."""
        body = fastjson.loads_request(request.body) if request.body else None
        acks = body.get("acks") if isinstance(body, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(acks, list) or not acks:
            return request.answer(ResponseCode.NO_MESSAGE)
        answer = request.answer(ResponseCode.SUCCESS)
        end: int | None = None
        for data in acks:
            group, topic, receipt, places = _batch(data, str(body.get("brokerName") or ""))
            known = self._topics.get(topic)
            if known is None or not 0 <= receipt.queue_id < known.read_queue_nums:
                log.error("a batch of acks is of no queue topic=%s %s", topic[:300], receipt)
                continue
            low, high = self._bounds(topic, receipt.queue_id)
            offsets = [receipt.start_offset + place for place in places]
            offsets = [offset for offset in offsets if low <= offset <= high]
            if receipt.revive_queue == ORDER_REVIVE_QUEUE:
                queue = QueueOf(group, topic, receipt.queue_id)
                for offset in offsets:
                    remark = self._ack_in_order(queue, offset, receipt.pop_ms, connection)
                    if remark is not None:
                        answer = request.answer(ResponseCode.MESSAGE_ILLEGAL, remark)
                continue
            name = self._name(topic, group, receipt.queue_id, receipt)
            try:
                end = self._pop.log.ack(name, offsets, receipt.revive_queue) or end
            except StoreError as error:
                log.error("acknowledgements are not stored %s reason=%s", name, error)
                return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        return self._when_stored(request, answer, end)

    def change_invisible_time(self, request: RemotingCommand, connection: Connection) -> _Answer:
        """CHANGE_MESSAGE_INVISIBLETIME: a message comes again so many ms from now (invariant 3)."""
        header = ChangeInvisibleTimeHeader.parse(request.ext)
        refusal = self._refusal(request, connection, header)
        if refusal is not None:
            return refusal
        group, topic, queue_id, offset = (
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.offset,
        )
        low, high = self._bounds(topic, queue_id)
        if not low <= offset < high:
            return request.answer(ResponseCode.NO_MESSAGE)
        receipt = Receipt.parse(header.extra_info)
        now = self._clock.now_ms()
        invisible_ms = min(max(0, header.invisible_time), INVISIBLE_MS_MAX)
        if receipt.is_order:
            if offset < self._offsets.query(group, topic, queue_id):
                return request.answer(ResponseCode.SUCCESS)
            queue, pop_ms = QueueOf(group, topic, queue_id), receipt.pop_ms
            self._pop.order.postpone(queue, offset, pop_ms, now + invisible_ms)
            ext = ChangeInvisibleTimeResponseHeader(
                pop_ms, now + invisible_ms - pop_ms, receipt.revive_queue
            ).ext()
            return request.answer(ResponseCode.SUCCESS, None, ext)
        old = self._name(topic, group, queue_id, receipt)
        if not self._is_out(old, offset, receipt):
            remark = (
                f"the message is not invisible any more: it was acknowledged, or its time is over, "
                f"key:{topic}@{queue_id}, offset:{offset}"
            )
            return request.answer(ResponseCode.NO_MESSAGE, remark)
        new = Name(topic, group, queue_id, offset, now, receipt.broker_name)
        try:
            self._pop.log.check_point(new, invisible_ms, [offset], receipt.revive_queue, again=True)
        except StoreError as error:
            log.error("an invisible time is not changed %s reason=%s", old, error)
            return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
        if new != old:
            try:
                self._pop.log.ack(old, [offset], receipt.revive_queue)
            except StoreError as error:
                log.error("a changed check point is not written off %s reason=%s", old, error)
                self._pop.log.ack_unwritten(old, [offset])
        self._pop.wake()
        ext = ChangeInvisibleTimeResponseHeader(now, invisible_ms, receipt.revive_queue).ext()
        answer = request.answer(ResponseCode.SUCCESS, None, ext)
        return self._when_stored(request, answer, self._pop.log.end)

    # ------------------------------------------------------------ what they share

    def _refusal(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: AckMessageHeader | ChangeInvisibleTimeHeader,
    ) -> RemotingCommand | None:
        topic = self._topics.get(header.topic)
        if topic is None:
            log.error("the topic %s not exist, consumer: %s", header.topic[:300], connection.peer)
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.peer}]"
            )
            log.warning("%s", remark)
            return request.answer(ResponseCode.MESSAGE_ILLEGAL, remark)
        return None

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def _name(self, topic: str, group: str, queue_id: int, receipt: Receipt) -> Name:
        broker_name = receipt.broker_name or self._config.broker_name
        return Name(topic, group, queue_id, receipt.start_offset, receipt.pop_ms, broker_name)

    def _is_out(self, name: Name, offset: int, receipt: Receipt) -> bool:
        """Whether a receipt is still valid."""
        point = self._pop.log.state.get(name)
        if point is not None:
            return point.is_out(offset)
        # A check point that an Apache broker's timer still holds: nobody can tell, so believe the client.
        return (
            self._pop.log.may_be_hidden(name, receipt.revive_queue)
            and name.pop_ms + receipt.invisible_ms > self._clock.now_ms()
        )

    def _ack_in_order(
        self, queue: QueueOf, offset: int, pop_ms: int, connection: Connection
    ) -> str | None:
        """A message of an orderly pop is done. Returns: what is wrong with that, or None."""
        old = self._offsets.query(*queue)
        if offset < old:
            return None
        try:
            following = self._pop.order.ack(queue, offset, pop_ms)
        except ValueError:
            group, topic, queue_id = queue
            remark = (
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, commit:{offset}, "
                f"next:-1, {connection.peer}"
            )
            log.warning("%s", remark)
            return remark
        if following is not None:
            self._offsets.place(*queue, following)
            self._pop.log.state.move(queue, following)
        return None

    def _when_stored(
        self, request: RemotingCommand, answer: RemotingCommand, end: int | None
    ) -> _Answer:
        """The answer now, or when the log is on the disk (invariant 1)."""
        if end is None or self._store.config.flush_disk_type != "SYNC_FLUSH":
            return answer
        return self._flushed(request, answer, end)

    async def _flushed(
        self, request: RemotingCommand, answer: RemotingCommand, end: int
    ) -> RemotingCommand:
        future = self._store.flushed(end)
        if future is not None:
            timeout_ms = self._store.config.sync_flush_timeout
            done, _ = await asyncio.wait([future], timeout=timeout_ms / 1000)
            if not done or future.exception() is not None:
                return request.answer(
                    ResponseCode.FLUSH_DISK_TIMEOUT, "what was acknowledged is not on the disk yet"
                )
        return answer


def _batch(data: Any, broker_name: str) -> tuple[str, str, Receipt, list[int]]:
    """Group, topic, receipt and places behind its start offset. Raises: HeaderError."""
    try:
        group = str(data["c"])
        topic = real_topic(str(data["t"]), group, str(data["r"]))
        receipt = Receipt(
            int(data["so"]),
            int(data["pt"]),
            int(data["it"]),
            int(data["rq"]),
            str(data["r"]),
            broker_name,
            int(data["q"]),
        )
        return group, topic, receipt, _places(data.get("b"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HeaderError(f"a batch of acks is broken: {error!r}") from error


def _places(bits: Any) -> list[int]:
    """The numbers of the set bits of a java.util.BitSet: its bytes, lowest first, in Base64.

    >>> _places("BQE=")
    [0, 2, 8]
    """
    try:
        raw = base64.b64decode(bits or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"the bits {str(bits)[:50]!r} are no Base64") from error
    if len(raw) > _BITS_SIZE_MAX:
        raise ValueError(f"a batch of acks has {len(raw)} bytes of bits, at most {_BITS_SIZE_MAX}")
    number = int.from_bytes(raw, "little")
    return [place for place in range(number.bit_length()) if number >> place & 1]
