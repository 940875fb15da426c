"""Names of topics and groups: the rules, and the prefix of a namespace.

A namespace is a plain prefix: topic `T` of namespace `ns` is `ns%T`, its group's retry topic
`%RETRY%ns%g`. System topics have none. Sources: Validators, NamespaceUtil, MixAll, TopicValidator,
RocketMQ 4.9.7.
"""

from functools import lru_cache

from pocketmq.client.errors import IllegalGroup, IllegalTopic
from pocketmq.model.message import MessageQueue
from pocketmq.model.names import (
    AUTO_CREATE_TOPIC,
    BROKER_ONLY_TOPICS,
    DLQ_PREFIX,
    GROUP_LENGTH_MAX,
    RESERVED_GROUPS,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TOPIC_LENGTH_MAX,
    TRACE_TOPIC,
    is_group_topic,
    is_legal,
)


def check_topic(topic: object) -> str:
    """Return the topic if its name is legal. Raises: IllegalTopic."""
    if not isinstance(topic, str):
        raise IllegalTopic(f"the topic must be text, not {topic!r:.80}")
    if not topic:
        raise IllegalTopic("the topic is empty: name the topic")
    if not is_legal(topic):
        raise IllegalTopic(
            f"topic {topic!r} has characters that are not allowed; allowed are letters, digits, % | _ -"
        )
    if len(topic) > TOPIC_LENGTH_MAX and not is_group_topic(topic):
        raise IllegalTopic(
            f"topic {topic[:40]!r}... has {len(topic)} characters; at most {TOPIC_LENGTH_MAX} are allowed"
        )
    return topic


@lru_cache(maxsize=1024)
def check_send_topic(topic: str) -> str:
    """Return the topic if users may send to it. Raises: IllegalTopic."""
    if check_topic(topic) in BROKER_ONLY_TOPICS:
        raise IllegalTopic(f"topic {topic!r} belongs to the system: send to a topic of your own")
    return topic


def check_group(group: str) -> str:
    """Return the group if its name is legal. Raises: IllegalGroup."""
    if not group or not group.strip():
        raise IllegalGroup("the group is empty: name the group")
    if not is_legal(group):
        raise IllegalGroup(
            f"group {group!r} has characters that are not allowed; allowed are letters, digits, % | _ -"
        )
    if len(group) > GROUP_LENGTH_MAX:
        raise IllegalGroup(
            f"group {group[:40]!r}... has {len(group)} characters; at most {GROUP_LENGTH_MAX} are allowed"
        )
    if group in RESERVED_GROUPS:
        raise IllegalGroup(f"group {group!r} is reserved: choose a name of your own")
    return group


def with_namespace(namespace: str | None, name: str) -> str:
    """Return `name` as it travels.

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
    """Return `name` as the user knows it.

    >>> without_namespace("ns", "ns%T"), without_namespace("ns", "%RETRY%ns%g")
    ('T', '%RETRY%g')
    """
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(f"{namespace}%")


def shown(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """Return `queue` with its topic as the user knows it."""
    return queue._replace(topic=without_namespace(namespace, queue.topic))


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return (
        name in BROKER_ONLY_TOPICS
        or name in (TRACE_TOPIC, AUTO_CREATE_TOPIC)
        or name.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))
    )
