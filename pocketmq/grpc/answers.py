"""Statuses of answers: the codes, and their mapping from the broker's refusals."""

from typing import Any

from pocketmq.broker.refused import Refused
from pocketmq.grpc.messages import Status
from pocketmq.grpc.schema import Code
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import CarriedError

# Clients print the text, and decide by the code. Source: the proxy's ResponseBuilder, 5.5.0.
_CODES: dict[int, Code] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_TIMEOUT: Code.MESSAGE_NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: Code.OFFSET_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}


class StatusFailure(CarriedError):
    """The answer is a status and its reason."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code

    @classmethod
    def by(cls, refused: Refused) -> "StatusFailure":
        """Return the status for an act's refusal."""
        code = _CODES.get(refused.code, Code.INTERNAL_SERVER_ERROR)
        return cls(code, refused.remark or refused.code.name)

    @property
    def status(self) -> Any:
        return Status(code=self.code, message=str(self)[:2_000])


OK = Status(code=Code.OK, message="OK")
