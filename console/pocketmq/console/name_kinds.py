"""Kinds of names: which topics and groups are the system's, a group's retries, its dead letters.

Source: TopicValidator, MixAll.isSysConsumerGroup, rocketmq-dashboard's filters.
"""

from pocketmq.remoting.names import (
    DLQ_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

TOPIC_TYPES = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "UNSPECIFIED",
    "RETRY",
    "DLQ",
    "SYSTEM",
)
_BY_ATTRIBUTE = frozenset({"FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED"})


def kind_of_topic(
    name: str, message_type: str | None = None, system: frozenset[str] = frozenset()
) -> str:
    """One of TOPIC_TYPES. message_type: the attribute of 5.x; system: names that a broker keeps.

    >>> kind_of_topic("%DLQ%g"), kind_of_topic("T"), kind_of_topic("T", "FIFO")
    ('DLQ', 'NORMAL', 'FIFO')
    """
    if name.startswith(RETRY_PREFIX):
        return "RETRY"
    if name.startswith(DLQ_PREFIX):
        return "DLQ"
    if (
        name in SYSTEM_TOPICS
        or name in system
        or name.startswith(SYSTEM_TOPIC_PREFIX)
        or name.endswith(REPLY_SUFFIX)
    ):
        return "SYSTEM"
    return message_type if message_type in _BY_ATTRIBUTE else "NORMAL"
