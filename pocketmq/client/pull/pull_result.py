"""The result of a pull: status, the next offset and messages."""

from dataclasses import dataclass, field
from enum import StrEnum

from pocketmq.model.message import MessageExt
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.java_number import long, number


class PullStatus(StrEnum):
    """FOUND: messages. NO_NEW_MSG: the end of the queue. NO_MATCHED_MSG: messages, but none that match.
    OFFSET_ILLEGAL: outside the queue.
    """

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_OFFSET_MAX = (1 << 63) - 1
STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


@dataclass(slots=True)
class PullResult:
    """Offsets in messages; min_offset and max_offset are the queue's at the broker, max exclusive.

    suggest_broker_id: the broker to send the next pull to (0 the master).
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_broker_id: int = 0
    messages: list[MessageExt] = field(default_factory=list)
    offset_delta: int = 0

    @property
    def bounds(self) -> tuple[int, int]:
        """Return least and greatest offset."""
        return self.min_offset, self.max_offset


def pull_answer(answer: RemotingCommand) -> PullResult | None:
    """Parse an answer, its messages not decoded yet; None for a refusal, or if a number is invalid."""
    status = STATUS_OF_CODE.get(answer.code)
    ext = answer.ext
    if status is None or ext is None or "nextBeginOffset" not in ext:
        return None
    try:
        result = PullResult(
            status,
            long(ext["nextBeginOffset"]),
            number(ext.get("minOffset", 0)),
            number(ext.get("maxOffset", 0)),
            number(ext.get("suggestWhichBrokerId", 0)),
            [],
            number(ext.get("offsetDelta") or 0),
        )
    except ValueError:
        return None
    return result if 0 <= result.next_begin_offset <= _OFFSET_MAX else None
