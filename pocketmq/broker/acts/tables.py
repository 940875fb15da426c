"""Create, change and delete topics and subscription groups. Source: AdminBrokerProcessor, RocketMQ
4.9.7, 5.3.3.

A change is on disk once the returned future is done (None: it already is). If it cannot be saved, the future
fails and the change is undone.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pocketmq.broker.modes.mode import merge_attributes
from pocketmq.broker.node import Node
from pocketmq.broker.once.send_once import ATTRIBUTE as SEND_ONCE
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.refused import Refused
from pocketmq.model.names import RETRY_PREFIX, group_is_legal, topic_fault
from pocketmq.model.pop_receipt import pop_retry_topic
from pocketmq.model.tables import RESERVE, GroupConfig, TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store.queue.consume_queue_table import BATCH_QUEUE, QUEUE_TYPE, SIMPLE_QUEUE

log = logging.getLogger(__name__)

CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"

Saved = asyncio.Future[None]


class TopicChange(NamedTuple):
    """A topic's new settings; changes: of its attributes, `+a=b,-c` as 5.x tools send them."""

    topic: TopicConfig
    changes: str | None = None


class Removal(NamedTuple):
    """Topics removed from the table; call `finish` once the removal is saved."""

    names: list[str]
    saved: Saved | None


class TopicActs:
    """Changes to the topic table."""

    def __init__(self, tables: Tables, messages: Messages) -> None:
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._store = messages.store
        self._stats = messages.stats
        self._deliveries = messages.deliveries

    def update(self, wanted: Sequence[TopicChange], peer: Peer) -> Saved | None:
        """Create or change topics: all of them or none. Raises: Refused."""
        new: list[TopicConfig] = []
        for topic, changes in wanted:
            fault = self._fault(topic)
            if fault is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, fault)
            new.append(replace(topic, attributes=self._attributes(topic.topic, changes)))
        for topic in new:
            self._topics.update(topic)
            log.info("topic updated topic=%s by=%s", topic.topic, peer.address)
        return self._topics.stored()

    def _fault(self, topic: TopicConfig) -> str | None:
        """Return why a topic is refused: RocketMQ's rules for names, ours for numbers."""
        name = topic.topic
        fault = topic_fault(name)
        if fault is not None:
            return fault
        if self._topics.is_system(name):
            return f"The topic[{name}] is conflict with system topic."
        from pocketmq.model.row_faults import topic_row_fault

        return topic_row_fault(topic.to_json())

    def _attributes(self, topic: str, changes: str | None) -> dict[str, str]:
        """Apply the changes of 5.x tools, `+a=b` and `-a`, to the old attributes. Raises: Refused.

        The remarks about queue.type are those of RocketMQ 5.5, except that batch queues are not supported.
        """
        old = self._topics.get(topic)
        attributes = dict(old.attributes) if old is not None else {}
        for change in (changes or "").split(","):
            change = change.strip()
            if not change:
                continue
            name, equals, value = change[1:].partition("=")
            if name == QUEUE_TYPE:
                if old is not None:
                    raise _fault(f"attempt to update an unchangeable attribute. key: {name}")
                if value not in (SIMPLE_QUEUE, BATCH_QUEUE):
                    raise _fault(f"value is not in set: [{SIMPLE_QUEUE}, {BATCH_QUEUE}]")
                if value == BATCH_QUEUE:
                    raise _fault(
                        f"{name}={value} is not supported: this broker stores batches message by message, "
                        f"and clients read them in the same way. Create the topic without {name}"
                    )
            if name == CLEANUP_POLICY and value == COMPACTION and attributes.get(name) != value:
                raise _fault(
                    f"{name}={value} is not supported: this broker deletes messages by age alone, and would "
                    f"keep each value of a key. Create the topic without {name}"
                )
            if name.startswith(RESERVE) and equals:
                _check_reserved(name, value, {**attributes, name: value})
            if name == SEND_ONCE and equals and value.lower() not in ("true", "false"):
                raise _fault(f"value is not in set: [true, false], key: {name}")
            if change[0] == "+" and name and equals:
                attributes[name] = value
            elif change[0] == "-" and name and not equals:
                attributes.pop(name, None)
            else:
                raise _fault(
                    f"kv string format wrong: {change!r}; attributes are +name=value or -name"
                )
        return attributes

    def remove(self, topic: str) -> Removal:
        """Remove a topic and its pop retry topics from the table. Raises: Refused."""
        fault = topic_fault(topic)
        if fault is None and self._topics.is_system(topic):
            fault = f"The topic[{topic}] is conflict with system topic."
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, fault)
        groups = self._offsets.groups_of(topic)
        again = [pop_retry_topic(topic, group, v2=v2) for group in groups for v2 in (False, True)]
        # Ours: group g's retries of topic b have the name of the retry topic of a group g_b.
        names = [topic, *(name for name in again if self._is_only_popped(name))]
        for name in names:
            self._topics.delete(name)
        return Removal(names, self._topics.stored())

    def _is_only_popped(self, name: str) -> bool:
        is_of_a_group = self._groups.get(name.removeprefix(RETRY_PREFIX)) is not None
        return self._topics.get(name) is not None and not is_of_a_group

    def finish(self, names: Iterable[str], peer: Peer) -> None:
        """Delete the queues and offsets of topics whose removal is saved."""
        for name in names:
            if self._topics.get(name) is not None:
                # It was recreated meanwhile.
                continue
            # A kill between the two leaves messages of which nothing is known, and never the other way.
            self._deliveries.forget_topic(name)
            # As in 5.x: a topic that is made again under the name must not begin with old offsets, nor with
            # those that a kill would bring back.
            self._offsets.remove_topic(name)
            self._store.delete_topic(name)
            self._stats.forget_topic(name)
            log.info("topic deleted topic=%s by=%s", name, peer.address)


class GroupActs:
    """Changes to the table of subscription groups."""

    def __init__(self, node: Node, tables: Tables, messages: Messages) -> None:
        self._events = node.events
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._stats = messages.stats

    def update(self, wanted: Sequence[GroupConfig], peer: Peer) -> Saved | None:
        """Create or change groups: all of them or none. Raises: Refused, IllegalArgument."""
        for group in wanted:
            if not group_is_legal(group.group):
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group name {group.group[:300]!r} contains illegal characters or is "
                    "too long, allowing only ^[%|a-zA-Z0-9_-]+$",
                )
        for group in wanted:
            merge_attributes(group, self._groups.get(group.group))
        for group in wanted:
            self._groups.update(group)
            log.info("group updated group=%s by=%s", group.group, peer.address)
        return self._groups.stored()

    def delete(self, group: str, peer: Peer, *, with_offsets: bool) -> Saved | None:
        """Delete a group if it exists."""
        self._groups.delete(group)
        if with_offsets:
            self._offsets.remove_group(group)
        self._events.group_deleted(group)
        self._stats.forget_group(group)
        log.info("group deleted group=%s by=%s", group, peer.address)
        return self._groups.stored()


def _check_reserved(name: str, value: str, attributes: dict[str, str]) -> None:
    """Check what a topic is to keep. Raises: Refused."""
    from pocketmq.store.queue.topic_retention import ATTRIBUTES, Reserved

    if name not in ATTRIBUTES:
        return
    try:
        Reserved.parse({name: value})
    except IllegalArgument as error:
        raise _fault(str(error)) from None
    if (
        attributes.get("message.type", "").upper() == "LITE"
        or attributes.get(QUEUE_TYPE) == BATCH_QUEUE
    ):
        raise _fault(f"{name} is not supported for lite topics and batch queues")


def _fault(text: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, text)
