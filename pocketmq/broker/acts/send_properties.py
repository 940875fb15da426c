"""What the properties and flags of a send ask for, and what the broker adds to them."""

from datetime import datetime

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.internal_append import BROKERS_FLAGS
from pocketmq.broker.refused import Refused
from pocketmq.model.message_codec import add_property, get_property, remove_property
from pocketmq.model.tables import TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.flags import MessageSysFlag
from pocketmq.remoting.java_number import integer

# No number of queues has more.
_DIGITS_MAX = 10
_BATCHES_MAX = 256


class AddedProperties:
    """CLUSTER, and for clients of 5.x region and trace, which tell consumers whether and where to trace."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.cluster = config.broker_cluster_name.encode()
        # Properties of a batch as they came -> as they are stored, and whether a send waits.
        self._of_batches: dict[str, tuple[bytes, bool]] = {}

    def trace(self) -> bytes:
        """Return what brokers of 5.x add."""
        trace_on = str(self._config.trace_on).lower()
        return f"\x02MSG_REGION\x01{self._config.region_id}\x02TRACE_ON\x01{trace_on}".encode()

    def with_trace(self, properties: bytes) -> bytes:
        """Add it to the properties of a message."""
        for name in (b"MSG_REGION", b"TRACE_ON"):
            properties = remove_property(properties, name)
        return properties.removesuffix(b"\x02") + self.trace()[0 if properties else 1 :]

    def of_batch(self, text: str, as_five: bool) -> tuple[bytes, bool]:
        """Return what all messages of a batch get, and whether the send waits; text: as sent."""
        if as_five:
            # Each batch of such a client has an id of its own among them: no use to keep those.
            return self._outer(text.encode(), as_five)
        outer = self._of_batches.get(text)
        if outer is None:
            if len(self._of_batches) >= _BATCHES_MAX:
                self._of_batches.clear()
            outer = self._of_batches[text] = self._outer(text.encode(), as_five)
        return outer

    def _outer(self, properties: bytes, as_five: bool) -> tuple[bytes, bool]:
        wait = waits_by(properties)
        if as_five:
            # Clients of 5.x give the batch an id of its own, and their brokers keep those of its messages.
            properties = self.with_trace(remove_property(properties, b"UNIQ_KEY"))
        cleared = remove_property(remove_property(properties, b"POP_CK"), b"CLUSTER")
        return add_property(cleared, b"CLUSTER", self.cluster), wait


def waits_by(properties: bytes) -> bool:
    """Return True if the sender wants to wait until the message is safe."""
    return get_property(properties, b"WAIT") in (None, b"true")


def flags_of(asked: int, topic: TopicConfig) -> int:
    """Return the sysFlag of a message of a topic. asked: as it was sent."""
    flags = asked & ~BROKERS_FLAGS
    return flags | MessageSysFlag.MULTI_TAGS if topic.filter_type == "MULTI_TAG" else flags


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


def with_transaction_id(properties: bytes) -> tuple[bytes, str | None]:
    """Add the transaction's id, which consumers of 5.x see; return the properties and the id."""
    key = get_property(properties, b"UNIQ_KEY")
    if not key:
        return properties, None
    properties = remove_property(properties, b"__transactionId__")
    return add_property(properties, b"__transactionId__", key), key.decode("utf-8", "replace")


def human_time(ms: int) -> str:
    """Format ms as RocketMQ's remarks do: `2026-11-21 12:30:00,000`."""
    text = datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text},{ms % 1000:03d}"
