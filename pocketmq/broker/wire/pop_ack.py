"""Receipts: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pocketmq.broker.acts.receipts import Acknowledged, ReceiptActs
from pocketmq.broker.durability import Durability
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.refused import Refused
from pocketmq.broker.wire.when_stored import Answer, when_kept
from pocketmq.model.pop_receipt import Receipt, real_topic
from pocketmq.remoting import fastjson
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
)
from pocketmq.remoting.java_number import number
from pocketmq.remoting.transport.connection import Connection, Handler
from pocketmq.remoting.transport.dispatch import Steps

if TYPE_CHECKING:
    from pocketmq.broker.wire.lite.proxy import LiteProcessor

# A pop looks at 65,536 entries of a queue at most.
_BITS_SIZE_MAX = 65_536 // 8


class PopAckProcessor:
    """Handlers of the three codes; a response waits until what it reports is safe."""

    def __init__(
        self, receipts: ReceiptActs, durability: Durability, lite: "Callable[[], LiteProcessor]"
    ) -> None:
        """lite: of receipts that name a lite topic."""
        self._receipts = receipts
        self._lite = lite
        self._durability = durability

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    def ack(self, request: RemotingCommand, connection: Connection) -> Answer:
        header = AckMessageHeader.parse(request.ext)
        if header.lite_topic:
            return self._lite().ack(request, header)
        queue = GroupQueue(header.consumer_group, header.topic, header.queue_id)
        try:
            end = self._receipts.ack(queue, header.offset, header.extra_info, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return when_kept(request, request.answer(ResponseCode.SUCCESS), self._durability, end)

    def batch_ack(self, request: RemotingCommand, connection: Connection) -> Steps:
        body = fastjson.loads_request(request.body) if request.body else None
        acks = body.get("acks") if isinstance(body, Mapping) else None
        if not isinstance(body, Mapping) or not isinstance(acks, list) or not acks:
            return request.answer(ResponseCode.NO_MESSAGE)
        broker_name = str(body.get("brokerName") or "")
        batch: list[Acknowledged] = []
        for each in acks:
            batch.append(_batch(each, broker_name))
            yield
        try:
            end = yield from self._receipts.ack_many(batch, connection)
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        return when_kept(request, request.answer(ResponseCode.SUCCESS), self._durability, end)

    def change_invisible_time(self, request: RemotingCommand, connection: Connection) -> Answer:
        header = ChangeInvisibleTimeHeader.parse(request.ext)
        if header.lite_topic:
            return self._lite().change_invisible_time(request, header)
        queue = GroupQueue(header.consumer_group, header.topic, header.queue_id)
        try:
            found = self._receipts.postpone(
                queue, header.offset, header.extra_info, header.invisible_time, connection
            )
        except Refused as refused:
            return request.answer(refused.code, refused.remark)
        if found is None:
            return request.answer(ResponseCode.SUCCESS)
        ext = ChangeInvisibleTimeResponseHeader(
            found.pop_ms, found.invisible_ms, found.revive_queue
        ).ext()
        answer = request.answer(ResponseCode.SUCCESS, None, ext)
        return when_kept(request, answer, self._durability, found.end)


def _batch(data: Any, broker_name: str) -> Acknowledged:
    """Parse one entry of a batch. Raises: HeaderError."""
    try:
        group = str(data["c"])
        topic = real_topic(str(data["t"]), group, str(data["r"]))
        receipt = Receipt(
            number(data["so"]),
            number(data["pt"]),
            number(data["it"]),
            number(data["rq"]),
            str(data["r"]),
            broker_name,
            number(data["q"]),
        )
        queue = GroupQueue(group, topic, receipt.queue_id)
        return Acknowledged(queue, receipt, _places(data.get("b")))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HeaderError(f"cannot read a batch of acks: {error!r}") from error


def _places(bits: Any) -> list[int]:
    """Return the indices of the set bits of a java.util.BitSet: its bytes, lowest first, in Base64.

    >>> _places("BQE=")
    [0, 2, 8]
    """
    try:
        raw = base64.b64decode(bits or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"the bits {str(bits)[:50]!r} are not Base64") from error
    if len(raw) > _BITS_SIZE_MAX:
        raise ValueError(
            f"a batch of acks has {len(raw)} bytes of bits, but at most {_BITS_SIZE_MAX} are read"
        )
    return [8 * at + bit for at, byte in enumerate(raw) for bit in range(8) if byte >> bit & 1]
