"""Unused groups: those that were created by first use, and that nothing would be lost of.

A name that a client used once, or that a stranger made up, would stay for ever, with its retry topic. Such a
group is as if it had never been: all its settings are the defaults, it has no member, no offset, no message
to be retried, and no dead letter. It is created again when it is used.
"""

from collections.abc import Iterator

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.parts import Tables
from pocketmq.model.names import (
    BUILT_IN_GROUPS,
    SYSTEM_GROUP_PREFIX,
    dlq_topic,
    retry_topic,
)
from pocketmq.model.tables import GroupConfig
from pocketmq.store import MessageStore


def unused_groups(tables: Tables, consumers: ConsumerManager, store: MessageStore) -> Iterator[str]:
    """Yield the names of unused groups."""
    with_offsets = tables.offsets.groups()
    with_queues = set(store.topics())
    isolated = tables.isolated.groups
    for name, group in tables.groups.groups.items():
        if name in BUILT_IN_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX) or name in isolated:
            continue
        if group != GroupConfig(name) or name in with_offsets or consumers.get(name) is not None:
            continue
        if not {retry_topic(name), dlq_topic(name)} & with_queues:
            yield name


def delete_unused_groups(tables: Tables, consumers: ConsumerManager, store: MessageStore) -> int:
    """Delete all unused groups and their retry topics; return how many."""
    names = list(unused_groups(tables, consumers, store))
    for name in names:
        tables.groups.delete(name)
        if tables.topics.get(retry_topic(name)) is not None:
            tables.topics.delete(retry_topic(name))
    return len(names)
