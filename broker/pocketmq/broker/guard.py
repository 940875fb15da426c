"""GroupGuard: notices groups whose members subscribe differently, and what that costs them. Ours.

RocketMQ keeps one subscription per group, that of the last member to change it; a member that asks for
something else loses messages without a word (acceptance E2, E3; S90-S93). The guard changes nothing:

1. It compares what the members themselves ask of each topic (ClientChannel.subscriptions). Members that
   ask the same are a camp; two camps or more are a difference. Retry topics are left out.
2. A difference becomes a finding when it has looked the same for `grace_ms`: shorter ones are clients
   that start, or a change that is rolled out.
3. A finding is raised once: one log line, one count, one call of the listener. It is raised again only
   when the camps ask for something else, not when clients come and go within them.
4. Costs are worked out when somebody asks: a queue gives its holder what passes the group's
   subscription and then the holder's own; every other wish is lost in that queue.
Owner: the Broker. A pure state machine: time and members come from outside.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pocketmq.broker.allocation import averagely, utf16_order
from pocketmq.broker.consumer_manager import ConsumerGroup, ConsumerManager
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.names import RETRY_PREFIX
from pocketmq.remoting.subscription import ALL, SubscriptionData

log = logging.getLogger(__name__)

_ACTIVELY = "CONSUME_ACTIVELY"
# Clients named in a log line; the rest is counted.
_NAMED_MAX = 4
ADVICE = (
    "give each subscription a group of its own, let all members subscribe the same, or set "
    "groupMode=isolate"
)

# What a camp asks of a topic: (expression type, tags or the expression); None: it does not subscribe.
Wish = tuple[str, tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class Camp:
    """Members that ask the same of a topic; expression is None when they do not subscribe it."""

    wish: Wish
    expression: str | None
    client_ids: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "clientIds": list(self.client_ids),
            "expression": self.expression,
            "expressionType": None if self.wish is None else self.wish[0],
        }


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost in some queues: `lost` (tags, or a text about them) to the clients of one camp.

    holder: the client that has these queues; None when nobody asks for their messages.
    """

    queue_ids: tuple[int, ...]
    holder: str | None
    lost: str
    lost_to: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "holder": self.holder,
            "lost": self.lost,
            "lostTo": list(self.lost_to),
            "queueIds": list(self.queue_ids),
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One group and topic whose members differ.

    since_ms: wall time since which they have differed; raised: invariant 3; stored: the expression by
    which the broker filters now, None when the group's subscription lacks the topic.
    """

    group: str
    topic: str
    since_ms: int
    raised: bool
    stored: str | None
    camps: tuple[Camp, ...]
    losses: tuple[Loss, ...]

    @property
    def text(self) -> str:
        """One sentence for logs and terminals."""
        camps = "; ".join(f"{_asks(camp)}: {_names(camp.client_ids)}" for camp in self.camps)
        losses = "; ".join(
            f"queue {','.join(map(str, loss.queue_ids))} ({loss.holder or 'nobody reads it'}) "
            f"loses {loss.lost} of {_names(loss.lost_to)}"
            for loss in self.losses
        )
        stored = "no longer knows the topic" if self.stored is None else f"filters by {self.stored}"
        since = datetime.fromtimestamp(self.since_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
        return (
            f"members of group {self.group} subscribe topic {self.topic} differently since {since}: "
            f"{camps}. The broker {stored}. {losses or 'Nothing is lost at this moment'}. "
            f"What to do: {ADVICE}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "camps": [camp.to_json() for camp in self.camps],
            "group": self.group,
            "losses": [loss.to_json() for loss in self.losses],
            "raised": self.raised,
            "since": self.since_ms,
            "stored": self.stored,
            "text": self.text,
            "topic": self.topic,
        }


@dataclass(slots=True)
class _Difference:
    """One topic of a group. signature: what the camps ask; the ms are monotonic but since_ms."""

    signature: frozenset[Wish]
    since_ms: int
    looks_so_since: int
    raised: frozenset[Wish] | None = None


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
        on_finding: Callable[[Finding], None] | None = None,
    ) -> None:
        """queue_count(topic): its queues at this broker; grace_ms() is invariant 2; is_watched(group):
        whether differences cost this group anything (isolated groups lose nothing); holders(group,
        topic): queue id -> client id that was seen to pull it, the rest is worked out."""
        self._clock = clock
        self._consumers = consumers
        self._queue_count = queue_count
        self._grace_ms = grace_ms
        self._is_watched = is_watched
        self._holders = holders
        self.on_finding = on_finding
        self._groups: dict[str, _Watched] = {}
        # How many findings were raised since the start.
        self.raised_count = 0

    # ------------------------------------------------------------ what happens

    def members_changed(self, group: ConsumerGroup) -> None:
        """A member came, went, or asks for something else."""
        now, wall = self._clock.monotonic_ms(), self._clock.now_ms()
        watched = self._groups.get(group.name)
        known = watched.differences if watched is not None else {}
        different: dict[str, _Difference] = {}
        for topic in _topics(group):
            signature = frozenset(camp.wish for camp in _camps(group, topic))
            if len(signature) < 2:
                continue
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
                    "members subscribe alike again, or are gone group=%s topic=%s",
                    group.name,
                    topic,
                )
        if different:
            self._groups[group.name] = _Watched(different)
        else:
            self._groups.pop(group.name, None)

    def tick(self) -> None:
        """Raise what has lasted (invariants 2 and 3); called about once a second."""
        if not self._groups:
            return
        now, grace = self._clock.monotonic_ms(), self._grace_ms()
        for name, watched in self._groups.items():
            for topic, difference in watched.differences.items():
                if (
                    difference.raised == difference.signature
                    or now - difference.looks_so_since < grace
                    or not self._is_watched(name)
                ):
                    continue
                difference.raised = difference.signature
                self._raise(name, topic, difference)

    def _raise(self, name: str, topic: str, difference: _Difference) -> None:
        group = self._consumers.get(name)
        if group is None:
            return
        self.raised_count += 1
        finding = self._finding(group, topic, difference)
        log.warning("group guard: %s", finding.text)
        if self.on_finding is not None:
            self.on_finding(finding)

    # ------------------------------------------------------------ asking

    @property
    def active_count(self) -> int:
        """Findings that are raised and not over."""
        return sum(
            difference.raised is not None
            for watched in self._groups.values()
            for difference in watched.differences.values()
        )

    def findings(self, group: str | None = None) -> list[Finding]:
        """Every difference of one group or of all, those not raised yet too."""
        names = self._groups if group is None else [group] if group in self._groups else []
        found = []
        for name in sorted(names):
            online = self._consumers.get(name)
            if online is None or not self._is_watched(name):
                continue
            for topic, difference in sorted(self._groups[name].differences.items()):
                found.append(self._finding(online, topic, difference))
        return found

    def _finding(self, group: ConsumerGroup, topic: str, difference: _Difference) -> Finding:
        camps = _camps(group, topic)
        stored = group.subscriptions.get(topic)
        return Finding(
            group.name,
            topic,
            difference.since_ms,
            difference.raised is not None,
            None if stored is None else _expression(stored),
            tuple(camps),
            tuple(self._losses(group, topic, camps, stored)),
        )

    def _losses(
        self,
        group: ConsumerGroup,
        topic: str,
        camps: list[Camp],
        stored: SubscriptionData | None,
    ) -> Iterable[Loss]:
        """Invariant 4, queues with the same result together."""
        ids = sorted(group.client_ids(), key=utf16_order)
        queues = range(self._queue_count(topic))
        holders = {
            queue: client
            for index, client in enumerate(ids)
            for queue in averagely(queues, len(ids), index)
        }
        for queue, seen in self._holders(group.name, topic).items():
            if seen in ids and queue in holders:
                holders[queue] = seen
        wish_of = {client: camp.wish for camp in camps for client in camp.client_ids}
        together: dict[tuple[str | None, str, tuple[str, ...]], list[int]] = {}
        for queue in queues:
            client = holders.get(queue)
            own = None if client is None else wish_of.get(client)
            holder = None if own is None else client
            given = _both(None if stored is None else _wish(stored), own)
            for camp in camps:
                lost = _lost(camp.wish, given)
                if lost is not None:
                    together.setdefault((holder, lost, camp.client_ids), []).append(queue)
        for (holder, lost, clients), queue_ids in together.items():
            yield Loss(tuple(queue_ids), holder, lost, clients)


# ------------------------------------------------------------ camps


def _topics(group: ConsumerGroup) -> set[str]:
    return {
        topic
        for channel in group.channels.values()
        for topic in channel.subscriptions
        if not topic.startswith(RETRY_PREFIX)
    }


def _camps(group: ConsumerGroup, topic: str) -> list[Camp]:
    """The members by what they ask of the topic, the largest camp first."""
    members: dict[Wish, tuple[str | None, list[str]]] = {}
    for channel in group.channels.values():
        asked = channel.subscriptions.get(topic)
        if asked is None:
            # A pull consumer chooses its queues itself and may have subscribed nothing at all.
            if group.consume_type == _ACTIVELY:
                continue
            members.setdefault(None, (None, []))[1].append(channel.client_id)
        else:
            members.setdefault(_wish(asked), (_expression(asked), []))[1].append(channel.client_id)
    camps = [
        Camp(wish, expression, tuple(sorted(clients)))
        for wish, (expression, clients) in members.items()
    ]
    return sorted(camps, key=lambda camp: (-len(camp.client_ids), camp.client_ids))


def _wish(asked: SubscriptionData) -> Wish:
    """Subscriptions that let the same through have the same wish, however they are written."""
    if asked.is_tag:
        return "TAG", tuple(sorted(asked.tags_set))
    return asked.expression_type, (asked.sub_string,)


def _expression(asked: SubscriptionData) -> str:
    """Tags in one order, so that two ways to write one subscription look alike."""
    return (" || ".join(sorted(asked.tags_set)) or ALL) if asked.is_tag else asked.sub_string


# ------------------------------------------------------------ what is lost

_EVERYTHING: Wish = ("TAG", ())


def _both(stored: Wish, own: Wish) -> Wish:
    """What passes the group's subscription and then the member's own; None: nothing.

    A mix with SQL92 is named by its two texts, since only messages can tell what passes both.
    """
    if stored is None or own is None:
        return None
    if stored in (own, _EVERYTHING):
        return own
    if own == _EVERYTHING or own[0] != "TAG":
        # The client looks at tags only: an expression of its own filters nothing there.
        return stored
    if stored[0] == "TAG":
        common = tuple(sorted(set(stored[1]) & set(own[1])))
        return ("TAG", common) if common else None
    return "SQL92", (f"({stored[1][0]}) and tags {' || '.join(own[1])}",)


def _lost(wish: Wish, given: Wish) -> str | None:
    """What of a wish is not given; None: nothing, or nothing was wished.

    >>> _lost(("TAG", ("A", "B")), ("TAG", ("B",))), _lost(("TAG", ()), ("TAG", ("B",)))
    ('A', 'everything but B')
    >>> _lost(("TAG", ("A",)), ("TAG", ())), _lost(None, None), _lost(("TAG", ()), None)
    (None, None, 'everything')
    """
    if wish is None or given in (wish, _EVERYTHING):
        return None
    kind, parts = wish
    if given is None:
        return "everything" if wish == _EVERYTHING else " || ".join(parts)
    if kind == "TAG" and given[0] == "TAG":
        if not parts:
            return "everything but " + " || ".join(given[1])
        missing = [tag for tag in parts if tag not in given[1]]
        return " || ".join(missing) or None
    whole = "everything" if wish == _EVERYTHING else " || ".join(parts)
    return f"{whole} as far as it is not {' || '.join(given[1])}"


# ------------------------------------------------------------ texts


def _asks(camp: Camp) -> str:
    return "not subscribed" if camp.expression is None else f"[{camp.expression}]"


def _names(clients: tuple[str, ...]) -> str:
    more = len(clients) - _NAMED_MAX
    return ", ".join(clients[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
