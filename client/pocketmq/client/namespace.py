"""Names of topics and groups: what is allowed, and the prefix of a namespace.

A namespace is a plain prefix: topic `T` of namespace `ns` is `ns%T`, its group's retry topic
`%RETRY%ns%g`. System topics have none. Sources: Validators, NamespaceUtil, MixAll, TopicValidator,
RocketMQ 4.9.7.
"""

import re
from functools import lru_cache

from pocketmq.client.errors import IllegalGroup, IllegalTopic

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
REPLY_POSTFIX = "REPLY_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
AUTO_CREATE_TOPIC = "TBW102"
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_TOPIC_SIZE_MAX = 127
_GROUP_SIZE_MAX = 255
_RESERVED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})
_SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)


def check_topic(topic: str) -> str:
    """The topic itself. Raises: IllegalTopic."""
    if not topic:
        raise IllegalTopic("the topic is empty: name the topic")
    if not _NAME.fullmatch(topic):
        raise IllegalTopic(
            f"topic {topic!r} has characters that are not allowed; allowed are letters, digits, % | _ -"
        )
    if len(topic) > _TOPIC_SIZE_MAX and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise IllegalTopic(
            f"topic {topic[:40]!r}... has {len(topic)} characters; at most {_TOPIC_SIZE_MAX} are allowed"
        )
    return topic


@lru_cache(maxsize=1024)
def check_send_topic(topic: str) -> str:
    """A topic that users may send to. Raises: IllegalTopic."""
    if check_topic(topic) in _SYSTEM_TOPICS:
        raise IllegalTopic(f"topic {topic!r} belongs to the system: send to a topic of your own")
    return topic


def check_group(group: str) -> str:
    """The group itself. Raises: IllegalGroup."""
    if not group or not group.strip():
        raise IllegalGroup("the group is empty: name the group")
    if not _NAME.fullmatch(group):
        raise IllegalGroup(
            f"group {group!r} has characters that are not allowed; allowed are letters, digits, % | _ -"
        )
    if len(group) > _GROUP_SIZE_MAX:
        raise IllegalGroup(
            f"group {group[:40]!r}... has {len(group)} characters; at most {_GROUP_SIZE_MAX} are allowed"
        )
    if group in _RESERVED_GROUPS:
        raise IllegalGroup(f"group {group!r} is reserved: choose a name of your own")
    return group


def retry_topic(group: str) -> str:
    """Where the messages go that a group shall get again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where the messages go that a group could not consume."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def with_namespace(namespace: str | None, name: str) -> str:
    """`name` as it travels.

    >>> with_namespace("ns", "T"), with_namespace("ns", "%RETRY%g"), with_namespace(None, "T")
    ('ns%T', '%RETRY%ns%g', 'T')
    """
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(f"{namespace}%"):
        return name
    return f"{prefix}{namespace}%{bare}"


def without_namespace(namespace: str | None, name: str) -> str:
    """`name` as the user knows it.

    >>> without_namespace("ns", "ns%T"), without_namespace("ns", "%RETRY%ns%g")
    ('T', '%RETRY%g')
    """
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(f"{namespace}%")


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return (
        name in _SYSTEM_TOPICS
        or name in (TRACE_TOPIC, AUTO_CREATE_TOPIC)
        or name.startswith(("rmq_sys_", "CID_RMQ_SYS_"))
    )
