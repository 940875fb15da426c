"""ReceiptHandle: what an SDK presents to acknowledge a message. Source: ReceiptHandle, RocketMQ 5.5.0.

    start offset, pop time ms, invisible ms, revive queue, retry flag, broker, queue id, queue offset,
    commit log offset

nine words with one blank between: the receipt of pop/receipt.py, and the record's position. The proxy's
handles of a changed invisible time have ten; the last one counts.
"""

from functools import lru_cache
from typing import NamedTuple

from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.schema import Code
from pocketmq.model.pop_receipt import Receipt, real_topic
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import long

_SHARED = 7
_SIZE_MAX = 1_000
_OFFSET_SIZE_MAX = 19


class PoppedFrom(NamedTuple):
    """The messages that one pop took from one queue."""

    queue: GroupQueue
    receipt: Receipt


class ReceiptHandle(NamedTuple):
    """words: the first seven, shared by all messages that one pop took from one queue; offset: in the
    queue; position: of the record, -1 if not given.
    """

    words: str
    offset: int
    position: int

    @classmethod
    def parse(cls, text: str) -> "ReceiptHandle":
        """Parse a handle. Raises: StatusFailure."""
        words = text.split(" ")
        if _SHARED < len(words) <= _SHARED + 3 and len(text) <= _SIZE_MAX:
            offset, position = words[_SHARED], words[-1] if len(words) > _SHARED + 1 else "-1"
            try:
                if len(offset) <= _OFFSET_SIZE_MAX and len(position) <= _OFFSET_SIZE_MAX:
                    return cls(" ".join(words[:_SHARED]), long(offset), long(position))
            except ValueError:
                pass
        raise no_handle(text)

    def out(self, group: str, topic: str) -> PoppedFrom:
        """Return where the message is. Raises: StatusFailure."""
        return handed_out(group, topic, self.words)

    def __str__(self) -> str:
        return f"{self.words} {self.offset} {self.position}"


@lru_cache(maxsize=1_024)
def handed_out(group: str, topic: str, words: str) -> PoppedFrom:
    """Return where messages are, by the words that their handles share. Raises: StatusFailure."""
    try:
        receipt = Receipt.parse(words)
        name = real_topic(topic, group, receipt.retry)
    except HeaderError:
        raise no_handle(words) from None
    return PoppedFrom(GroupQueue(group, name, receipt.queue_id), receipt)


def words_of(receipt: Receipt) -> str:
    """Return the words that handles share."""
    return " ".join([str(word) for word in receipt[:_SHARED]])


def no_handle(text: str) -> StatusFailure:
    """Return the refusal of a text that names no message that was handed out."""
    return StatusFailure(
        Code.INVALID_RECEIPT_HANDLE,
        f"{text[:100]!r} is not a receipt handle: send the one that came with the message",
    )
