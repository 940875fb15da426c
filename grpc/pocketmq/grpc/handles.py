"""Handle: what an SDK shows to acknowledge a message. Source: ReceiptHandle, RocketMQ 5.5.0.

    start offset, pop time ms, invisible ms, revive queue, retry flag, broker, queue id, queue offset,
    commit log offset

nine words with one blank between: the receipt of pop/receipt.py, and the record's position. The proxy's
handles of a changed invisible time have ten; the last one counts.
"""

from typing import NamedTuple

from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.grpc.answers import Failed
from pocketmq.grpc.schema import Code
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.pop_receipt import Receipt, real_topic


class Handle(NamedTuple):
    """receipt: the first eight words; position: of the record, -1 when it is not said."""

    receipt: Receipt
    position: int

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Raises: Failed."""
        words = text.split(" ")
        try:
            if not 8 <= len(words) <= 10:
                raise ValueError(text)
            receipt = Receipt.parse(" ".join(words[:8]))
            position = int(words[-1]) if len(words) > 8 else -1
            if len(words[-1]) > 20:
                raise ValueError(words[-1])
        except (HeaderError, ValueError):
            raise Failed(
                Code.INVALID_RECEIPT_HANDLE,
                f"{text[:100]!r} is no receipt handle: send the one that came with the message",
            ) from None
        return cls(receipt, position)

    def queue(self, group: str, topic: str) -> QueueOf:
        """Where the message is. Raises: Failed."""
        try:
            name = real_topic(topic, group, self.receipt.retry)
        except HeaderError as error:
            raise Failed(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
        return QueueOf(group, name, self.receipt.queue_id)

    def __str__(self) -> str:
        return f"{self.receipt} {self.position}"
