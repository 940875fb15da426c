"""GroupGuard: detects groups whose members subscribe differently, and what that costs them. Ours.

RocketMQ keeps one subscription per group, that of the last member to change it; a member that subscribes
something else silently loses messages (acceptance E2, E3; S90-S93). The guard changes nothing:

1. It compares what the members themselves ask of each topic (ClientChannel.subscriptions) by the rules of
   remoting.agreement.
2. A difference becomes a finding when it has been stable for `grace_ms`: shorter ones are starting
   clients, or a change being rolled out.
3. A finding is raised once: one log line, one count. It is raised again only when the camps change their
   subscriptions, not when clients join or leave a camp.
4. Costs are computed on demand: a queue delivers to its holder what passes the group's subscription and
   then the holder's own; whatever else members subscribe is lost in that queue.
Owner: the Broker. A pure state machine: time and members come from outside.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pocketmq.broker.groups.allocation import averagely, utf16_order
from pocketmq.broker.groups.consumer_group import ConsumerGroup
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.model.agreement import GroupFinding, Subscriptions, camps, differences, losses
from pocketmq.model.subscription import Wish
from pocketmq.remoting.clock import Clock

log = logging.getLogger(__name__)

# Members that are compared as soon as one of them changes.
_LOOKED_AT_ONCE_MAX = 64


@dataclass(slots=True)
class _Difference:
    """One topic of a group. signature: what the camps subscribe; times are monotonic except since_ms."""

    signature: frozenset[Wish | None]
    since_ms: int
    looks_so_since: int
    raised: frozenset[Wish | None] | None = None


@dataclass(slots=True)
class _Watched:
    differences: dict[str, _Difference] = field(default_factory=dict)


class GroupGuard:
    """Owner of the differences."""

    def __init__(
        self,
        clock: Clock,
        consumers: ConsumerManager,
        queue_count: Callable[[str], int],
        *,
        grace_ms: Callable[[], int],
        is_watched: Callable[[str], bool] = lambda group: True,
        holders: Callable[[str, str], Mapping[int, str]] = lambda group, topic: {},
    ) -> None:
        """queue_count(topic): its queues at this broker; grace_ms(): see invariant 2;
        is_watched(group): False if differences cost the group nothing (isolated groups);
        holders(group, topic): queue id -> client id seen to pull it; the other holders are
        computed.
        """
        self._clock = clock
        self._consumers = consumers
        self._queue_count = queue_count
        self._grace_ms = grace_ms
        self._is_watched = is_watched
        self._holders = holders
        self._groups: dict[str, _Watched] = {}
        # Large groups that have changed since the last tick.
        self._unseen: set[str] = set()
        # How many findings were raised since the start.
        self.raised_count = 0

    # ------------------------------------------------------------ what happens

    def members_changed(self, group: ConsumerGroup) -> None:
        """Look at a group whose members changed; `tick` looks at large ones."""
        if len(group.channels) > _LOOKED_AT_ONCE_MAX:
            self._unseen.add(group.name)
        else:
            self._look(group)

    def _look(self, group: ConsumerGroup) -> None:
        now, wall = self._clock.monotonic_ms(), self._clock.now_ms()
        watched = self._groups.get(group.name)
        known = watched.differences if watched is not None else {}
        different: dict[str, _Difference] = {}
        for topic, found in differences(_asked(group), group.consume_type).items():
            signature = frozenset(camp.wish for camp in found)
            old = known.get(topic)
            if old is None:
                old = _Difference(signature, wall, now)
            elif old.signature != signature:
                old.signature = signature
                old.looks_so_since = now
            different[topic] = old
        for topic, gone in known.items():
            if topic not in different and gone.raised is not None:
                log.info(
                    "members subscribe alike again, or have left group=%s topic=%s",
                    group.name,
                    topic,
                )
        if different:
            self._groups[group.name] = _Watched(different)
        else:
            self._groups.pop(group.name, None)

    def tick(self) -> list[GroupFinding]:
        """Report findings older than the grace time (invariants 2 and 3); called about once a second."""
        raised: list[GroupFinding] = []
        for name in self._unseen:
            unseen = self._consumers.get(name)
            if unseen is not None:
                self._look(unseen)
        self._unseen.clear()
        if not self._groups:
            return raised
        now, grace = self._clock.monotonic_ms(), self._grace_ms()
        for name, watched in self._groups.items():
            group = self._consumers.get(name)
            for topic, difference in watched.differences.items():
                if (
                    difference.raised == difference.signature
                    or now - difference.looks_so_since < grace
                    or not self._is_watched(name)
                ):
                    continue
                difference.raised = difference.signature
                if group is not None:
                    raised.append(self._finding(group, topic, difference))
        for finding in raised:
            self.raised_count += 1
            log.warning("group guard: %s", finding.text)
        return raised

    # ------------------------------------------------------------ asking

    @property
    def active_count(self) -> int:
        """Return the number of raised findings that are still true."""
        return sum(
            difference.raised is not None
            for watched in self._groups.values()
            for difference in watched.differences.values()
        )

    def findings(self, group: str | None = None) -> list[GroupFinding]:
        """Return every difference of one group, or of all, including those not raised yet."""
        names = self._groups if group is None else [group] if group in self._groups else []
        found = []
        for name in sorted(names):
            online = self._consumers.get(name)
            if online is None or not self._is_watched(name):
                continue
            for topic, difference in sorted(self._groups[name].differences.items()):
                found.append(self._finding(online, topic, difference))
        return found

    def _finding(self, group: ConsumerGroup, topic: str, difference: _Difference) -> GroupFinding:
        found = camps(_asked(group), topic, group.consume_type)
        stored = group.subscriptions.get(topic)
        return GroupFinding(
            group.name,
            topic,
            difference.since_ms,
            difference.raised is not None,
            None if stored is None else stored.expression,
            tuple(found),
            tuple(losses(found, stored, self._holders_of(group, topic))),
        )

    def _holders_of(self, group: ConsumerGroup, topic: str) -> dict[int, str | None]:
        """Return the client of each queue: the one seen to pull it, else by the usual allocation."""
        ids = sorted(group.client_ids(), key=utf16_order)
        queues = range(self._queue_count(topic))
        holders: dict[int, str | None] = dict.fromkeys(queues)
        for index, client in enumerate(ids):
            holders.update(dict.fromkeys(averagely(queues, len(ids), index), client))
        for queue, seen in self._holders(group.name, topic).items():
            if seen in ids and queue in holders:
                holders[queue] = seen
        return holders


def _asked(group: ConsumerGroup) -> list[tuple[str, Subscriptions]]:
    """Return each member's own subscriptions."""
    return [(each.client_id, each.subscriptions) for each in group.channels.values()]
