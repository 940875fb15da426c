"""Message, MessageExt and MessageQueue: what producers send and consumers receive.

Property names are RocketMQ's own (MessageConst). `Message` is filled in by the caller; `MessageExt` adds what
the broker knows.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pocketmq.remoting.errors import IllegalArgument


class Property(StrEnum):
    """Names of the properties with a meaning to the system. Source: MessageConst, 5.5.0."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    TRAN_MSG = "TRAN_MSG"
    PGROUP = "PGROUP"
    TRANSACTION_ID = "__transactionId__"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    UNIQ_KEY = "UNIQ_KEY"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    MSG_REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    CLUSTER = "CLUSTER"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    MSG_TYPE = "MSG_TYPE"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    ARRIVE_TIME = "ARRIVE_TIME"
    INSTANCE_ID = "INSTANCE_ID"
    SHARDING_KEY = "__SHARDINGKEY"
    INNER_NUM = "INNER_NUM"
    INNER_BASE = "INNER_BASE"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_OUT_MS = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
    TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
    POP_CK = "POP_CK"
    POP_CK_OFFSET = "POP_CK_OFFSET"
    FIRST_POP_TIME = "1ST_POP_TIME"
    ORIGIN_GROUP = "ORIGIN_GROUP"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"


# Asking an enum member for its value costs as much as the look-up that it is for.
_TAGS, _KEYS = Property.TAGS.value, Property.KEYS.value
_CONSUME_START = Property.CONSUME_START_TIME.value


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Order: topic, broker name, queue id (S11)."""

    topic: str
    broker_name: str
    queue_id: int

    def to_java(self) -> str:
        """Return the text that Java prints, which consistent hashing uses as the key."""
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


class Reader(Protocol):
    """Reads what a decoder left unread."""

    def ask(self, message: "MessageExt", name: str) -> Any:
        """Return an attribute that is not set yet. Raises: AttributeError."""
        ...


class Late:
    """The part of a message that a decoder leaves unread until its first use.

    Attributes: late (None: nothing is left; else what `reader` reads), started (CONSUME_START_TIME, not yet
    among the properties).
    """

    __slots__ = ("late", "reader", "started")

    late: tuple[Any, ...] | None
    reader: Reader
    started: str


@dataclass(slots=True)
class Message(Late):
    """A message as a producer makes it.

    body in bytes; flag is the caller's own 32-bit number; properties must not contain the characters
    \\x01 and \\x02.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    transaction_id: str | None = None

    def __post_init__(self) -> None:
        if self.topic.__class__ is not str or self.body.__class__ is not bytes:
            self._check()
        properties, tags, keys = self.properties, self.tags, self.keys
        if tags is not None:
            if tags.__class__ is not str:
                self._check()
            properties[_TAGS] = tags
        elif properties:
            self.tags = properties.get(_TAGS)
        if keys is not None:
            if keys.__class__ is not str:
                self._check()
            properties[_KEYS] = keys
        elif properties:
            self.keys = properties.get(_KEYS)

    def _check(self) -> None:
        """Check what the caller wrote; what a decoder made is its own. Raises: IllegalArgument."""
        if self.__class__ is not Message:
            return
        for name, kinds in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                words = "bytes" if name == "body" else "text"
                raise IllegalArgument(
                    f"{name} must be {words}, not {value!r:.40} ({type(value).__name__}); a message is "
                    'Message("Orders", b"body", tags="new", keys="order-7")'
                )


_KINDS: dict[str, tuple[type, ...]] = {
    "topic": (str,),
    "body": (bytes, bytearray, memoryview),
    "tags": (str, type(None)),
    "keys": (str, type(None)),
}


@dataclass(slots=True)
class MessageExt(Message):
    """A message as a broker stores and serves it.

    Times in ms since 1970; hosts as `ip:port`; body is unpacked where sysFlag says it was compressed;
    stored_size is the size of the record; offset_msg_id names host and position.

    A consumer's decoder sets what all need; the rest is read from the record when it is first asked for.
    """

    broker_name: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = ""
    store_timestamp: int = 0
    store_host: str = ""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    stored_size: int = 0
    magic: int = 0
    offset_msg_id: str = ""

    def __post_init__(self) -> None:
        Message.__post_init__(self)
        self.late = None  # type: ignore[misc]  # mypy forgets the slots of a base

    if not TYPE_CHECKING:  # A checker would take any name for an attribute.

        def __getattr__(self, name: str) -> Any:
            """Called for what is not set yet. Raises: AttributeError."""
            late = None if name == "late" else self.late
            if late is None:
                # Another thread may have asked meanwhile.
                return object.__getattribute__(self, name)
            return self.reader.ask(self, name)

    def note_start(self, started: str) -> None:
        """Set CONSUME_START_TIME, without reading the other properties."""
        late = self.late
        if late is None:
            self.properties[_CONSUME_START] = started
        else:
            self.started = started  # type: ignore[misc]

    @property
    def msg_id(self) -> str:
        """Return the producer's unique key, else the offset id: what RocketMQ's clients show as msgId."""
        return self.properties.get(Property.UNIQ_KEY.value) or self.offset_msg_id

    @property
    def message_queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
