"""How sent messages are stored, and the names that both directions share.

The texts of properties are RocketMQ's, so that classic clients and gRPC ones share topics. Source: the
proxy's GrpcConverter and SendMessageActivity, RocketMQ 5.5.0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pocketmq.broker.lite.names import fault_of
from pocketmq.grpc.answers import StatusFailure
from pocketmq.grpc.schema import Code, Encoding, MessageType
from pocketmq.remoting.flags import MessageSysFlag

BODY_SIZE_MAX = 4 << 20
PROPERTIES_SIZE_MAX = 16_384
PROPERTIES_COUNT_MAX = 128
GROUP_SIZE_MAX = 64
DELAY_MS_MAX = 24 * 3_600_000
RECOVERY_S_MAX = 3_600
COMPRESSED = int(MessageSysFlag.COMPRESSED)
_PREPARED = int(MessageSysFlag.TRANSACTION_PREPARED)
_GZIP, _LITE = int(Encoding.GZIP), int(MessageType.LITE)
_TRANSACTION = int(MessageType.TRANSACTION)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Ours to set: no client may send one as its own property, and no client sees one.
_RESERVED = """
    TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC ORIGIN_GROUP REAL_TOPIC REAL_QID TRAN_MSG PGROUP
    MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME
    UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME
    TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL
    ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC
    TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY
    TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
    _SYS_MSG_PRIORITY_ __LITE_TOPIC INNER_MULTI_DISPATCH
"""
RESERVED = frozenset(_RESERVED.split())


class StorableMessage(NamedTuple):
    """How a message is stored; group: decides its queue, if there is one."""

    properties: str
    sys_flag: int
    born_ms: int
    kind: MessageType
    message_id: str
    group: str | None


def type_of(properties: Mapping[str, str]) -> MessageType:
    """Return the type of a message, by its stored properties.

    >>> type_of({"__SHARDINGKEY": "a"}).name, type_of({}).name
    ('FIFO', 'NORMAL')
    """
    if properties.get("TRAN_MSG", "").lower() == "true":
        return MessageType.TRANSACTION
    if properties.keys() & {"DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"}:
        return MessageType.DELAY
    if "__SHARDINGKEY" in properties:
        return MessageType.FIFO
    if "_SYS_MSG_PRIORITY_" in properties:
        return MessageType.PRIORITY
    if "__LITE_TOPIC" in properties:
        return MessageType.LITE
    return MessageType.NORMAL


def stored_of(message: Any, topic: str, peer: str, now_ms: int) -> StorableMessage:
    """Return how a sent message is stored. Raises: StatusFailure, in the order of the proxy's checks."""
    system = message.system_properties
    user = message.user_properties
    size = len(message.body)
    if not size:
        raise StatusFailure(Code.MESSAGE_BODY_EMPTY, "a message needs a body")
    if size > BODY_SIZE_MAX:
        raise StatusFailure(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has {size} bytes, but at most {BODY_SIZE_MAX} are allowed",
        )
    properties = _user_properties(user) if user else {}
    tag, keys = system.tag, system.keys
    if properties or tag or keys:
        _check_sizes(properties, tag, keys)
    if tag:
        properties["TAGS"] = tag
    if keys:
        properties["KEYS"] = " ".join(keys)
    is_special = bool(properties)
    message_id = system.message_id
    if not message_id.strip() or _has_control(message_id):
        raise StatusFailure(Code.ILLEGAL_MESSAGE_ID, "the message needs an id")
    sys_flag = COMPRESSED if system.body_encoding == _GZIP else 0
    if system.message_type == _TRANSACTION:
        sys_flag |= _PREPARED
        _prepare(system, properties)
        is_special = True
    group = None
    if system.HasField("message_group"):
        group = system.message_group
        is_special = True
    if system.HasField("delivery_timestamp"):
        properties["TIMER_DELIVER_MS"] = str(_delivery_ms(system.delivery_timestamp, now_ms))
        is_special = True
    if system.HasField("priority"):
        properties["_SYS_MSG_PRIORITY_"] = str(system.priority)
        is_special = True
    if group is not None:
        _check_group(group)
        properties["__SHARDINGKEY"] = group
    if system.message_type == _LITE or system.HasField("lite_topic"):
        group = properties["__LITE_TOPIC"] = checked_name(system.lite_topic)
        is_special = True
    trace = system.trace_context
    if trace and not _has_control(trace):
        properties["TRACE_CONTEXT"] = trace
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    kind = type_of(properties) if is_special else MessageType.NORMAL
    born = system.born_timestamp
    # Ours: a message of 1970 would be too old for whatever asks about its age.
    born_ms = born.seconds * 1000 + born.nanos // 1_000_000 or now_ms
    host = system.born_host
    if not host or _has_control(host):
        host = peer
    text += (
        f"UNIQ_KEY\x01{message_id}\x02__BORNHOST\x01{host}\x02BORN_TIMESTAMP\x01{born_ms}\x02"
        f"RECONSUME_TIME\x01{system.delivery_attempt}\x02PGROUP\x01{topic}\x02"
    )
    return StorableMessage(text, sys_flag, born_ms, kind, message_id, group)


def _has_control(text: str) -> bool:
    # The first question is answered much quicker, nearly always.
    return not text.isprintable() and _CONTROL.search(text) is not None


def _check_sizes(user: dict[str, str], tag: str, keys: Sequence[str]) -> None:
    """Check tag and keys, and their size with that of the user's properties. Raises: StatusFailure."""
    if tag:
        _check_tag(tag)
    if keys:
        _check_keys(keys)
    size = len("".join([*user, *user.values(), tag, *keys]).encode())
    if size > PROPERTIES_SIZE_MAX:
        raise StatusFailure(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"tag, keys and properties have {size} bytes, but at most {PROPERTIES_SIZE_MAX} are "
            "allowed",
        )


def _user_properties(user: Any) -> dict[str, str]:
    properties = dict(user)
    if len(properties) > PROPERTIES_COUNT_MAX:
        raise StatusFailure(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the message has {len(properties)} properties, but at most {PROPERTIES_COUNT_MAX} "
            "are allowed",
        )
    taken = RESERVED.intersection(properties)
    if taken:
        raise StatusFailure(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            f"{min(taken)} is a name that RocketMQ uses itself: choose another name for the "
            "property",
        )
    text = "".join([*properties, *properties.values()])
    if _has_control(text) or "" in properties:
        raise StatusFailure(
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "names and values of properties must not contain control characters, and names must "
            "not be empty",
        )
    return properties


def _check_tag(tag: str) -> None:
    if not tag.strip() or "|" in tag or _has_control(tag):
        raise StatusFailure(
            Code.ILLEGAL_MESSAGE_TAG,
            "a tag must not be blank or contain '|' or control characters",
        )


def _check_keys(keys: Any) -> None:
    for each in keys:
        if not each.strip() or _has_control(each):
            raise StatusFailure(
                Code.ILLEGAL_MESSAGE_KEY, "a key must not be blank or contain control characters"
            )


def _check_group(group: str) -> None:
    if not group.strip() or len(group.encode()) >= GROUP_SIZE_MAX or _has_control(group):
        raise StatusFailure(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"a message group has 1 to {GROUP_SIZE_MAX - 1} bytes and no control characters",
        )


def checked_name(name: str) -> str:
    """Return the name of a lite topic. Raises: StatusFailure."""
    fault = fault_of(name)
    if fault is not None:
        raise StatusFailure(Code.ILLEGAL_LITE_TOPIC, fault)
    return name


def _prepare(system: Any, properties: dict[str, str]) -> None:
    properties["TRAN_MSG"] = "true"
    # Consumers see it as the transaction's id.
    properties["__transactionId__"] = system.message_id
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds > RECOVERY_S_MAX:
            raise StatusFailure(
                Code.BAD_REQUEST,
                f"a transaction is first checked after at most {RECOVERY_S_MAX} s, not {seconds} s",
            )
        properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(max(0, seconds))


def _delivery_ms(moment: Any, now_ms: int) -> int:
    due_ms: int = moment.seconds * 1000 + moment.nanos // 1_000_000
    if due_ms - now_ms > DELAY_MS_MAX:
        raise StatusFailure(
            Code.ILLEGAL_DELIVERY_TIME,
            f"a message can be delayed by at most {DELAY_MS_MAX // 3600000} h, not "
            f"{(due_ms - now_ms) // 3600000} h",
        )
    return due_ms


def set_ms(timestamp: Any, ms: int) -> None:
    """Set a Timestamp or a Duration."""
    timestamp.seconds = ms // 1000
    timestamp.nanos = ms % 1000 * 1_000_000
