"""Names of topics and groups: the constants, which names are legal, and which belong to the system.

Each of RocketMQ's fixed names is written here and nowhere else. Pure tables and predicates.
Source: MixAll, TopicValidator, NamespaceUtil, RocketMQ 4.9.7; PopAckConstants, TimerMessageStore, 5.5.0.
"""

import re
from collections.abc import Container

MASTER_ID = 0
"""The broker id of a master; slaves have other numbers."""

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
# Ours: changes of schedules (broker/schedules/).
SCHEDULE_CHANGES_TOPIC = "rmq_sys_POCKETMQ_SCHEDULES"
# Ours: who changed what, and who was refused (broker/access/audit.py).
AUDIT_TOPIC = "rmq_sys_POCKETMQ_AUDIT"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"

TOOLS_GROUP = "TOOLS_CONSUMER"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
# Ours: its offset says which check points of the revive log the saved offsets know.
TAKEN_GROUP = "CID_RMQ_SYS_REVIVE_TAKEN"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
# Only the broker itself writes there (TopicValidator.isNotAllowedSendTopic).
BROKER_ONLY_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
# RocketMQ's clients send their traces there, to the second when they are set for a cloud (TraceConstants).
CLIENT_SYSTEM_TOPICS = (TRACE_TOPIC.lower(), "rmq_sys_trace_data_")
# Groups that exist without being created (SubscriptionGroupManager.init).
BUILT_IN_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
# Groups that a client may not take (Validators).
RESERVED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})

TOPIC_LENGTH_MAX = 127
# Ours: RocketMQ 4.9 checks group names at the client only, so `a/../b` became a file's content there.
# Its own characters and the 255 of the client's check are what we accept.
GROUP_LENGTH_MAX = 255

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def is_legal(name: str) -> bool:
    """Return True if a name is not empty and has only characters allowed for topics and groups."""
    return _LEGAL.match(name) is not None


def topic_fault(topic: str) -> str | None:
    """Return RocketMQ's remark on an illegal topic name; None if it is legal.

    >>> topic_fault("TopicTest")
    >>> topic_fault("../etc")
    'The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$'
    """
    if not topic.strip():
        return "The specified topic is blank."
    if not is_legal(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def group_is_legal(group: str) -> bool:
    """Return True if a group of this name may be created automatically."""
    return len(group) <= GROUP_LENGTH_MAX and is_legal(group)


def retry_topic(group: str) -> str:
    """Return the topic of a group's messages that are to be redelivered."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_group_topic(topic: str) -> bool:
    """Return True if a topic belongs to a group: its retries or its dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_topic(topic: str) -> bool:
    """Return True for topics that brokers use themselves; %RETRY% and %DLQ% topics hold users' messages."""
    return topic in SYSTEM_TOPICS or topic.lower().startswith(SYSTEM_TOPIC_PREFIX)


def is_users_topic(topic: str, own: Container[str] = ()) -> bool:
    """Return True for topics that users made: none of the system, of retries or of dead letters.

    own: those that brokers name after themselves and their clusters.
    """
    is_own = topic in own or is_system_topic(topic) or topic.endswith(REPLY_SUFFIX)
    return not (is_own or is_group_topic(topic))


def is_broker_only(topic: str) -> bool:
    """Return True for topics that only the broker writes.

    Ours: RocketMQ accepts sends to the timer's topic, which are then delivered to whatever topic they name,
    and to the revive log, where they count as acknowledgements.
    """
    if topic in BROKER_ONLY_TOPICS:
        return True
    lower = topic.lower()
    return lower.startswith(SYSTEM_TOPIC_PREFIX) and not lower.startswith(CLIENT_SYSTEM_TOPICS)


def is_internal(name: str) -> bool:
    """Return True for topics that hold what others sent, and retry topics of the broker's own groups."""
    return is_broker_only(name) or name.startswith(RETRY_PREFIX + SYSTEM_GROUP_PREFIX)


def is_system_group(group: str) -> bool:
    """Return True for groups that exist without users (MixAll.isSysConsumerGroup, and the built-in ones)."""
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
