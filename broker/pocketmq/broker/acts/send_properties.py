"""What the act of sending reads from a message's properties, and leaves out of them."""

from pocketmq.broker.refused import Refused
from pocketmq.broker.transaction_check import FIRST_STORED
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers import SendMessageHeader, SendMessageV2Header
from pocketmq.remoting.java_number import integer
from pocketmq.remoting.message_codec import add_property, get_property, remove_property
from pocketmq.remoting.tables import TopicConfig

# What a message is sent with, beside its body, in either form.
SendAsk = SendMessageHeader | SendMessageV2Header
# The broker's own notes on a half message.
OF_HALF = (
    b"REAL_TOPIC",
    b"REAL_QID",
    b"TRANSACTION_CHECK_TIMES",
    b"TRAN_PREPARED_QUEUE_OFFSET",
    FIRST_STORED,
)
# No number of queues has more.
_DIGITS_MAX = 10


def waits(ask: SendAsk) -> bool:
    """Return True if the sender wants to wait until the message is safe."""
    return get_property((ask.properties or "").encode(), b"WAIT") in (None, b"true")


def check_delay(properties: bytes) -> None:
    """Check that DELAY, if there is one, is a number: it would be delivered at once. Raises: Refused."""
    raw = get_property(properties, b"DELAY")
    try:
        integer((raw or b"0").decode("utf-8", "replace"))
    except ValueError:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property DELAY is not a number: {(raw or b'')[:40]!r}; name a delay level, as 3",
        ) from None


def queue_of_priority(properties: bytes, topic: TopicConfig, chosen: int) -> int:
    """Return the queue of a message of such a topic; without a priority, the one that was chosen."""
    priority = get_property(properties, b"_SYS_MSG_PRIORITY_") or b""
    if not priority.isdigit() or not topic.write_queues:
        return chosen
    return min(int(priority[:_DIGITS_MAX]), topic.write_queues - 1)


def with_id(properties: bytes) -> tuple[bytes, str | None]:
    """Add the transaction's id, which consumers of 5.x see; return the properties and the id."""
    key = get_property(properties, b"UNIQ_KEY")
    if not key:
        return properties, None
    properties = remove_property(properties, b"__transactionId__")
    return add_property(properties, b"__transactionId__", key), key.decode("utf-8", "replace")
