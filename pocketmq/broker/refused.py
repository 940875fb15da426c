"""Refused, OffsetMoved: how an act declines a request."""

from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import CarriedError
from pocketmq.store import (
    MessageStore,
    RecordIllegal,
    RecordTooLarge,
    StoreError,
    StoreNotWriteable,
)


class Refused(CarriedError):
    """Nothing was done, because of `remark`; each front translates `code` for its clients."""

    def __init__(self, code: ResponseCode, remark: str | None = None) -> None:
        super().__init__(remark or code.name)
        self.code = code
        self.remark = remark


class OffsetMoved(CarriedError):
    """A pull whose client must continue at `offset` instead."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"continue at {offset}")
        self.offset = offset


def store_refusal(error: StoreError, store: MessageStore) -> Refused:
    """Map a store error to RocketMQ's code and remark."""
    if isinstance(error, RecordTooLarge):
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body "
            f"length limit {store.config.max_message_size}B, msg properties length limit 32KB.",
        )
    if isinstance(error, RecordIllegal):
        return Refused(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if isinstance(error, StoreNotWriteable):
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, _not_available(str(error)))
    return Refused(ResponseCode.SYSTEM_ERROR, str(error))


def _not_available(why: str) -> str:
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's "
        "disk is full, messages are put to the slave, message store has been shut down, etc. "
        f"Here: {why}"
    )
