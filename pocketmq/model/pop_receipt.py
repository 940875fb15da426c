"""Receipt: what a client presents to acknowledge a popped message (property POP_CK, field extraInfo).

    start offset, pop time ms, invisible ms, revive queue, retry flag, broker, queue id [, queue offset]

eight words with one blank between; the first four name the check point, revive queue 999 an orderly pop.
The retry flag says which topic the queue is of: 0 TOPIC, 1 %RETRY%GROUP_TOPIC, 2 %RETRY%GROUP+TOPIC.
Source: ExtraInfoUtil, KeyBuilder, RocketMQ 5.3.3.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from pocketmq.model.names import RETRY_PREFIX
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.java_number import long

ORDER_REVIVE_QUEUE = 999
# Ours: nothing is invisible for longer, so that no sum of times leaves 64 bits.
INVISIBLE_MS_MAX = 10 * 365 * 24 * 3_600_000
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"


class Receipted(Enum):
    """A popped message: not acknowledged yet, acknowledged, or visible to the next pop again."""

    OUT = "out"
    ACKED = "acked"
    FREE = "free"


class Receipt(NamedTuple):
    """The words of an extraInfo; queue_offset is -1 if absent."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int = -1

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Parse an extraInfo. Raises: HeaderError."""
        words = text.split(" ")
        try:
            start, pop_ms, invisible_ms, revive_queue = (long(word) for word in words[:4])
            return cls(
                start,
                pop_ms,
                invisible_ms,
                revive_queue,
                words[4],
                words[5],
                long(words[6]) if len(words) > 6 else -1,
                long(words[7]) if len(words) > 7 else -1,
            )
        except (IndexError, ValueError) as error:
            raise HeaderError(
                f"extraInfo {text[:200]!r} is not the receipt of a popped message; send POP_CK back unchanged"
            ) from error

    @property
    def is_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def __str__(self) -> str:
        """Return the text that clients get."""
        return " ".join(str(word) for word in self)


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Return the topic of messages that a group popped and did not acknowledge.

    >>> pop_retry_topic("T", "g"), pop_retry_topic("T", "g", v2=True)
    ('%RETRY%g_T', '%RETRY%g+T')
    """
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a pop retry topic belongs to; any other topic itself.

    >>> normal_topic("%RETRY%g_T", "g"), normal_topic("%RETRY%g+T", "g"), normal_topic("T", "g")
    ('T', 'T', 'T')
    """
    if topic.startswith((f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+")):
        return topic[len(RETRY_PREFIX) + len(group) + 1 :]
    return topic


def group_of_retry(retry: str, topic: str) -> str:
    """Return the group of a retry topic. topic: where its message was sent first, "" if it does not say.

    >>> group_of_retry("%RETRY%g", "T"), group_of_retry("%RETRY%g_T", "T"), group_of_retry("%RETRY%g+T", "T")
    ('g', 'g', 'g')
    """
    name = retry.removeprefix(RETRY_PREFIX)
    if topic and name.endswith((f"_{topic}", f"+{topic}")):
        return name[: -len(topic) - 1]
    return name


def retry_flag(topic: str) -> str:
    """Return which kind of topic it is.

    >>> retry_flag("T"), retry_flag("%RETRY%g_T"), retry_flag("%RETRY%g+T")
    ('0', '1', '2')
    """
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that a flag stands for. Raises: HeaderError."""
    if retry == NORMAL:
        return topic
    if retry in (RETRY_V1, RETRY_V2):
        return pop_retry_topic(topic, group, v2=retry == RETRY_V2)
    raise HeaderError(f"the retry flag of a batch of acks is 0, 1 or 2, not {retry!r}")


def offsets_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """Return one part of startOffsetInfo and msgOffsetInfo.

    >>> offsets_info("T", 3, [7, 8])
    '0 3 7,8'
    """
    return f"{retry_flag(topic)} {queue_id} {','.join(str(offset) for offset in offsets)}"
