"""Names of topics and groups: which are well-formed, which are the system's, who may send to them.

Source: TopicValidator, MixAll, RocketMQ 4.9.7.
"""

import re

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

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_SUFFIX = "_REPLY_TOPIC"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

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
# Only the broker itself writes there.
SEND_FORBIDDEN_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        # Ours: what stands there is delivered to the topic that it names, whatever that is.
        TIMER_TOPIC,
    }
)
# Groups that exist without being created (SubscriptionGroupManager.init).
BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
TOPIC_LENGTH_MAX = 127
# Ours: RocketMQ 4.9 checks group names at the client only, so `a/../b` became a file's content there.
# Its own characters and the 255 of the client's check are what we accept.
GROUP_LENGTH_MAX = 255

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+\Z")


def topic_fault(topic: str) -> str | None:
    """RocketMQ's remark for a name that cannot be a topic; None when it can.

    >>> topic_fault("TopicTest")
    >>> topic_fault("../etc")
    'The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$'
    """
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.match(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def group_is_legal(group: str) -> bool:
    """Whether a group of this name may be created by itself."""
    return len(group) <= GROUP_LENGTH_MAX and _LEGAL.match(group) is not None


def retry_topic(group: str) -> str:
    """Where the messages of a group go that are to be consumed again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where the messages of a group go that were given up."""
    return DLQ_PREFIX + group
