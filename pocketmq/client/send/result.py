"""The result of a send, parsed from the answer of SEND_MESSAGE."""

from enum import StrEnum
from typing import NamedTuple

from pocketmq.model.message import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.java_number import long, number


class SendStatus(StrEnum):
    """How safely the message is stored; only SEND_OK meets the broker's configured promise."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message was stored.

    Attributes: msg_id (the unique key; of a batch all, joined by commas), offset_msg_id (names host and
    position), queue_offset (of a batch the first), transaction_id, recall_handle (5.x, for delayed ones),
    region_id and trace_on (the broker's settings for traces).
    """

    status: SendStatus
    msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


def send_result(answer: RemotingCommand, unique_key: str, queue: MessageQueue) -> SendResult | None:
    """Parse the answer to a send of any kind; None if it is a refusal, or its fields cannot be read.

    queue: where it was sent; the answer's own queue id takes precedence, since the broker may choose.
    """
    status = STATUS_OF_CODE.get(answer.code)
    ext = answer.ext
    if status is None or ext is None or "queueOffset" not in ext:
        return None
    get = ext.get
    try:
        queue_id = number(get("queueId", queue.queue_id))
        queue_offset = long(ext["queueOffset"])
    except ValueError:
        return None
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status,
        unique_key,
        queue,
        queue_offset,
        get("msgId", ""),
        get("transactionId"),
        get("recallHandle"),
        get("MSG_REGION") or "DefaultRegion",
        get("TRACE_ON") != "false",
    )
