"""IsolatedGroups: groups in which different subscriptions lose nothing. Ours; mode `isolate`.

Members with the same subscription form a sub-group: they share the queues among themselves, have their own
offsets, and get what they subscribe. Sub-groups are ordered by their creation.

1. A message belongs to the FIRST sub-group in that order that subscribes it; no other gets it. A new
   sub-group goes to the end, so it takes nothing from those already there.
2. A sub-group without members keeps its place for `keep_ms`: clients restart. Its messages wait.
3. Then it has departed for good. What it consumed stays consumed; what it did not goes to the next one in
   the order that subscribes it, as a *debt* over the offsets which that one has already passed: its clients
   are sent back (PULL_OFFSET_MOVED) and get from those offsets only what they are owed.
4. Messages that no other sub-group subscribes are kept for `remember_ms`: a later sub-group that subscribes
   them gets them from where the departed one had stopped.
5. The group's own offset (config/consumerOffset.json) is the lowest of its sub-groups': administrators see
   it, and a group that leaves this mode, or is opened by RocketMQ, continues there and loses nothing.
6. A retry message belongs to the owner of its original message.
7. An offset set by a client that is not a member, or by a reset, is set for every sub-group.

Kept in config/isolatedGroup.json. Owner: the Broker, on its event loop.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_group import BROADCASTING, ConsumerGroup
from pocketmq.broker.groups.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.modes.isolated_group import IsolatedGroup
from pocketmq.broker.modes.mode import GroupMode, GroupModes
from pocketmq.broker.modes.sub_group import (
    LIFE,
    QueueKey,
    SubGroup,
    SubGroupEvent,
    SubGroupState,
    merged,
)
from pocketmq.broker.modes.sub_group_order import FirstMatch
from pocketmq.broker.node import Node
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.model.names import retry_topic
from pocketmq.model.record import queue_offset_of
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import ConfigFile, EntryFilter, MessageStore

log = logging.getLogger(__name__)

# Sub-groups of one group. A group with more different subscriptions than this is misconfigured.
SUB_GROUPS_MAX = 64
# Reads of the store, of up to 64 Ki entries each, to see whether anything is owed in one queue.
_READS_MAX = 64


class IsolatedGroups(ConfigManager):
    """Owner of the isolated groups and of their file."""

    def __init__(
        self,
        file: ConfigFile,
        node: Node,
        modes: GroupModes,
        offsets: ConsumerOffsetManager,
        first_match: FirstMatch,
    ) -> None:
        super().__init__(file)
        self._clock = node.clock
        self._config = node.config
        self._events = node.events
        self._modes = modes
        self._offsets = offsets
        self._first_match = first_match
        # Groups in this mode that have or had members: what the hot paths look at.
        self.groups: dict[str, IsolatedGroup] = {}
        # The master's last table.
        self._taken: Any = None

    def to_json(self) -> dict[str, Any]:
        return {"groups": {name: group.to_json() for name, group in self.groups.items()}}

    def from_json(self, data: Any) -> None:
        table = data.get("groups") if isinstance(data, Mapping) else None
        now = self._clock.now_ms()
        for name, fields in (table or {}).items():
            if not self._is_isolated(str(name)):
                log.info("a group is no longer isolated, its sub-groups end group=%s", name)
                self.persist_soon()
                continue
            try:
                self.groups[str(name)] = IsolatedGroup.from_json(str(name), fields, now)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                log.error(
                    "isolatedGroup.json: skipped a group that cannot be read group=%s reason=%r",
                    name,
                    error,
                )

    def take(self, data: Any, online: Mapping[str, ConsumerGroup]) -> None:
        """Replace the table by the master's while this broker follows; its own clients are placed in it.

        Raises: AttributeError, LookupError, TypeError, ValueError if not all of it can be read.
        """
        if data == self._taken:
            return
        now = self._clock.now_ms()
        found = {
            str(name): IsolatedGroup.from_json(str(name), fields, now)
            for name, fields in data["groups"].items()
            if self._is_isolated(str(name))
        }
        self._taken = data
        self.groups.clear()
        self.groups.update(found)
        for name, isolated in self.groups.items():
            if name in online:
                channels = online[name].channels
                isolated.place_members(channels, now, self._offsets, self._first_match)
        self.persist_soon()

    def _is_isolated(self, group: str) -> bool:
        return self._modes.mode(group) is GroupMode.ISOLATE

    # ------------------------------------------------------------ members

    def merged(self, group: ConsumerGroup, channel: ClientChannel) -> list[SubscriptionData] | None:
        """Return the group's visible subscription when `channel` heartbeats; None: as in RocketMQ."""
        if not self._is_isolated(group.name):
            return None
        others = [
            each.subscriptions
            for connection, each in group.channels.items()
            if connection is not channel.connection
        ]
        return merged([*others, channel.subscriptions], group.subscriptions)

    def members_changed(self, group: ConsumerGroup) -> None:
        """Place the members of a group that changed."""
        if not self._is_isolated(group.name):
            self._end(group.name)
            return
        isolated = self.groups.get(group.name)
        if isolated is None:
            if not group.channels:
                return
            isolated = self.groups[group.name] = IsolatedGroup(group.name)
        isolated.place_members(
            group.channels, self._clock.now_ms(), self._offsets, self._first_match
        )
        self.persist_soon()
        self._tell(isolated)

    def refusal(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> str | None:
        """Why one more subscription is refused; None if it is accepted."""
        isolated = self.groups.get(group)
        if isolated is None or len(isolated.order.live()) < SUB_GROUPS_MAX:
            return None
        if isolated.order.find(subscriptions) is not None:
            return None
        return (
            f"group {group} is isolated and already has {SUB_GROUPS_MAX} different subscriptions, which is "
            "the limit: let members subscribe to the same, or use another group"
        )

    def peers(self, group: ConsumerGroup, connection: Peer) -> list[str] | None:
        """Return the client ids of the caller's sub-group; None: as in RocketMQ."""
        isolated = self.groups.get(group.name)
        sub_group = None if isolated is None else isolated.of(connection)
        if sub_group is None or group.message_model == BROADCASTING:
            return None
        return list(dict.fromkeys(each for c, each in sub_group.connections.items() if c.writable))

    def lock_group(self, group: str, client_id: str) -> str:
        """Return the name that a client's queue locks are kept under: its sub-group's own."""
        isolated = self.groups.get(group)
        sub_group = None if isolated is None else isolated.of_client(client_id)
        return group if sub_group is None else f"{group}@{sub_group.id}"

    # ------------------------------------------------------------ offsets

    def commit(self, group: str, connection: Peer, topic: str, queue_id: int, offset: int) -> bool:
        """Apply a member's commit; False if the connection is not a member's."""
        isolated = self.groups[group]
        sub_group = isolated.of(connection)
        if sub_group is None:
            return False
        if isolated.commit(sub_group, (topic, queue_id), offset):
            self._set_lowest(isolated, (topic, queue_id))
        return True

    def pulled(
        self, group: str, connection: Peer, topic: str, queue_id: int, following: int
    ) -> None:
        """Note that a member's pull was answered or held, with `following` as its next offset."""
        isolated = self.groups[group]
        sub_group = isolated.of(connection)
        if sub_group is not None:
            isolated.pulled(sub_group, (topic, queue_id), following)

    def start(self, group: str, connection: Peer, topic: str, queue_id: int) -> int | None:
        """Return a member's start offset; None if the connection is not a member's."""
        isolated = self.groups[group]
        sub_group = isolated.of(connection)
        if sub_group is None:
            return None
        return isolated.start(sub_group, (topic, queue_id), self._offsets)

    def cut(self, max_offset: Callable[[str, int], int]) -> None:
        """Move sub-groups that are beyond the end of their queue to it; a master's table is taken anew."""
        self._taken = None
        for isolated in self.groups.values():
            isolated.cut(max_offset)
            self.persist_soon()

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Apply an administrator's offset (7); does nothing for a group that is not isolated."""
        isolated = self.groups.get(group)
        if isolated is not None:
            isolated.reset(topic, queue_id, offset)
            self.persist_soon()
            self._events.shares_changed(topic)

    def _set_lowest(self, isolated: IsolatedGroup, key: QueueKey) -> None:
        self.dirty = True
        lowest = isolated.lowest(key)
        if lowest is not None and lowest != self._offsets.query(isolated.name, *key):
            self._offsets.move_on(isolated.name, *key, lowest)

    # ------------------------------------------------------------ time

    def tick(self, online: Mapping[str, ConsumerGroup]) -> None:
        """Apply mode changes and departures (2, 3, 4); called once a second."""
        for group in online.values():
            self.apply_mode(group)
        for name in [name for name in self.groups if not self._is_isolated(name)]:
            self._end(name)
        now = self._clock.now_ms()
        for isolated in self.groups.values():
            for sub_group in isolated.order.live():
                is_over = now - sub_group.left_ms >= self._config.isolate_keep_time
                if (
                    is_over
                    and LIFE[sub_group.life, SubGroupEvent.KEEP_OVER] is SubGroupState.DEPARTED
                ):
                    self._depart(isolated, sub_group, now)
            if isolated.forget_departed(now, self._config.isolate_remember_time):
                self.persist_soon()

    def apply_mode(self, group: ConsumerGroup) -> None:
        """Let a changed mode hold from now on."""
        name = group.name
        if self._is_isolated(name) != (name in self.groups):
            self.members_changed(group)
            # The group enters or leaves this mode: its members must rebalance.
            self._events.must_rebalance(name, list(group.channels))

    def _depart(self, isolated: IsolatedGroup, leaving: SubGroup, now: int) -> None:
        isolated.depart(leaving, now, self._first_match)
        for key in leaving.queues:
            self._set_lowest(isolated, key)
        self.persist_soon()
        self._tell(isolated)

    def forget(self, group: str, topic: str) -> None:
        """Drop a topic whose offsets were removed from the group: it starts over there."""
        isolated = self.groups.get(group)
        if isolated is not None:
            isolated.forget_topic(topic)
            self.persist_soon()

    def _end(self, group: str) -> None:
        isolated = self.groups.pop(group, None)
        if isolated is not None:
            log.info("a group is no longer isolated, its sub-groups end group=%s", group)
            self.persist_soon()
            self._tell(isolated)

    def _tell(self, isolated: IsolatedGroup) -> None:
        for topic in self._topics(isolated):
            self._events.shares_changed(topic)

    def _topics(self, isolated: IsolatedGroup) -> Iterator[str]:
        seen = {topic for each in isolated.order.sub_groups for topic in each.subscriptions}
        yield from seen
        yield retry_topic(isolated.name)

    # ------------------------------------------------------------ asking

    def describe(self, group: str) -> list[dict[str, Any]]:
        """Describe the sub-groups for the doctor, in their order; empty if the group is not isolated."""
        isolated = self.groups.get(group)
        return [] if isolated is None else [_described(each) for each in isolated.order.sub_groups]


def _described(sub_group: SubGroup) -> dict[str, Any]:
    queues: dict[str, dict[int, Any]] = {}
    for (topic, queue_id), each in sub_group.queues.items():
        queues.setdefault(topic, {})[queue_id] = each.to_json()
    return {
        "clientIds": sorted(sub_group.connections.values()),
        "id": sub_group.id,
        "leftTimestamp": sub_group.left_ms,
        "queues": queues,
        "state": sub_group.life.value,
        "subscriptions": [each.to_json() for each in sub_group.subscriptions.values()],
    }


def first_match_in(store: MessageStore) -> FirstMatch:
    """Search a store's queues for `owed`; gives up before the search delays clients."""

    def first_match(topic: str, queue_id: int, begin: int, end: int, matches: EntryFilter) -> int:
        at = max(begin, store.min_offset(topic, queue_id))
        end = min(end, store.max_offset(topic, queue_id))
        for _ in range(_READS_MAX):
            if at >= end:
                break
            result = store.read(topic, queue_id, at, 1, matches)
            if result.count:
                return queue_offset_of(result.buffers[0])
            if result.next_offset <= at:
                break
            at = result.next_offset
        return max(begin, at)

    return first_match
