"""SubGroup: the members of an isolated group with one subscription, and their progress. Ours.

`isolate.py` has the rules for sharing messages between sub-groups; this module is about a single one.
docs/decisions/0005-isolate-exactly-one.md says why.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.model.agreement import own_topics, signature
from pocketmq.model.message_codec import get_property
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import SubscriptionData
from pocketmq.remoting.transport.peer import Peer

# Behind every offset.
FAR = 1 << 62
# Whether a message with these property bytes is asked for.
Matches = Callable[[bytes], bool]


class Rewind(IntEnum):
    """Whether the client of a queue must go back, and what its commits mean until it has.

    OWED: it has passed messages that it is owed now. It still commits what it consumed, and that is not
    redelivered. FOREIGN: it comes from elsewhere; its commits are not about this sub-group.
    """

    NO = 0
    OWED = 1
    FOREIGN = 2


class QueueEvent(StrEnum):
    """Events of a sub-group in one queue; "here" is its offset."""

    PULL_AHEAD = "pull ahead"
    PULL_HERE = "pull here or behind"
    COMMIT_AHEAD = "commit ahead"
    COMMIT_HERE = "commit here"
    COMMIT_BEHIND = "commit behind"
    OWED = "passed messages become its"
    MEMBER_CAME = "a member comes from elsewhere"


class Reaction(StrEnum):
    """Reactions to the events."""

    ANSWER = "the pull is answered"
    SEND_BACK = "the client is sent back to its offset"
    TAKE = "the offset is the sub-group's"
    TAKE_AGAIN = "the same, and all that is its comes again from there"
    NOTE = "consumed ahead: not given again; the offset stays"
    IGNORE = "it is not about this sub-group"
    WAIT = "nothing until its client comes back"


# All that can happen, in each state: what is done, and the state after it.
STEPS: Mapping[tuple[Rewind, QueueEvent], tuple[Reaction, Rewind]] = {
    (Rewind.NO, QueueEvent.PULL_AHEAD): (Reaction.ANSWER, Rewind.NO),
    (Rewind.NO, QueueEvent.PULL_HERE): (Reaction.ANSWER, Rewind.NO),
    (Rewind.NO, QueueEvent.COMMIT_AHEAD): (Reaction.TAKE, Rewind.NO),
    (Rewind.NO, QueueEvent.COMMIT_HERE): (Reaction.TAKE, Rewind.NO),
    # The client itself went back: it wants its messages once more.
    (Rewind.NO, QueueEvent.COMMIT_BEHIND): (Reaction.TAKE_AGAIN, Rewind.NO),
    (Rewind.NO, QueueEvent.OWED): (Reaction.WAIT, Rewind.OWED),
    (Rewind.NO, QueueEvent.MEMBER_CAME): (Reaction.WAIT, Rewind.FOREIGN),
    (Rewind.OWED, QueueEvent.PULL_AHEAD): (Reaction.SEND_BACK, Rewind.OWED),
    (Rewind.OWED, QueueEvent.PULL_HERE): (Reaction.ANSWER, Rewind.NO),
    (Rewind.OWED, QueueEvent.COMMIT_AHEAD): (Reaction.NOTE, Rewind.OWED),
    (Rewind.OWED, QueueEvent.COMMIT_HERE): (Reaction.TAKE, Rewind.OWED),
    (Rewind.OWED, QueueEvent.COMMIT_BEHIND): (Reaction.TAKE, Rewind.OWED),
    (Rewind.OWED, QueueEvent.OWED): (Reaction.WAIT, Rewind.OWED),
    (Rewind.OWED, QueueEvent.MEMBER_CAME): (Reaction.WAIT, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.PULL_AHEAD): (Reaction.SEND_BACK, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.PULL_HERE): (Reaction.ANSWER, Rewind.NO),
    (Rewind.FOREIGN, QueueEvent.COMMIT_AHEAD): (Reaction.IGNORE, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.COMMIT_HERE): (Reaction.TAKE, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.COMMIT_BEHIND): (Reaction.TAKE, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.OWED): (Reaction.WAIT, Rewind.FOREIGN),
    (Rewind.FOREIGN, QueueEvent.MEMBER_CAME): (Reaction.WAIT, Rewind.FOREIGN),
}


class SubGroupState(StrEnum):
    """The states of a sub-group."""

    ACTIVE = "active"
    AWAITED = "waited for"
    DEPARTED = "departed"
    FORGOTTEN = "forgotten"


class SubGroupEvent(StrEnum):
    """Events that change the state."""

    MEMBER_IN = "a member with its subscription is there"
    LAST_OUT = "it has no member"
    KEEP_OVER = "the time for which it is waited for is over"
    SETTLED = "it is no longer needed, or left too long ago"
    RESTART = "the broker starts"


# A member that comes when its sub-group has left for good begins a new one, at the end of the order.
LIFE: Mapping[tuple[SubGroupState, SubGroupEvent], SubGroupState] = {
    (SubGroupState.ACTIVE, SubGroupEvent.MEMBER_IN): SubGroupState.ACTIVE,
    (SubGroupState.ACTIVE, SubGroupEvent.LAST_OUT): SubGroupState.AWAITED,
    (SubGroupState.ACTIVE, SubGroupEvent.KEEP_OVER): SubGroupState.ACTIVE,
    (SubGroupState.ACTIVE, SubGroupEvent.SETTLED): SubGroupState.ACTIVE,
    (SubGroupState.ACTIVE, SubGroupEvent.RESTART): SubGroupState.AWAITED,
    (SubGroupState.AWAITED, SubGroupEvent.MEMBER_IN): SubGroupState.ACTIVE,
    (SubGroupState.AWAITED, SubGroupEvent.LAST_OUT): SubGroupState.AWAITED,
    (SubGroupState.AWAITED, SubGroupEvent.KEEP_OVER): SubGroupState.DEPARTED,
    (SubGroupState.AWAITED, SubGroupEvent.SETTLED): SubGroupState.AWAITED,
    (SubGroupState.AWAITED, SubGroupEvent.RESTART): SubGroupState.AWAITED,
    (SubGroupState.DEPARTED, SubGroupEvent.MEMBER_IN): SubGroupState.DEPARTED,
    (SubGroupState.DEPARTED, SubGroupEvent.LAST_OUT): SubGroupState.DEPARTED,
    (SubGroupState.DEPARTED, SubGroupEvent.KEEP_OVER): SubGroupState.DEPARTED,
    (SubGroupState.DEPARTED, SubGroupEvent.SETTLED): SubGroupState.FORGOTTEN,
    (SubGroupState.DEPARTED, SubGroupEvent.RESTART): SubGroupState.DEPARTED,
}


@dataclass(slots=True)
class Debt:
    """Messages of [begin, end) that the departed sub-group `of` would have got, now owed to another.

    is_ahead: the client has not come back for it yet, so its commits do not cover the debt.
    """

    of: str
    begin: int
    end: int
    is_ahead: bool = False


@dataclass(slots=True)
class QueueState:
    """One queue as one sub-group sees it.

    offset: the next to consume, as its clients committed it. own_from: from here on it gets every message it
    owns; below only its debts. rewind: its client must go back to `offset`.
    passed: the offset up to which its clients were given messages; it is not saved, so after a restart it is
    unknown, that is, any.
    """

    offset: int
    own_from: int
    debts: list[Debt] = field(default_factory=list)
    rewind: Rewind = Rewind.NO
    passed: int = 0

    @classmethod
    def at(cls, offset: int) -> "QueueState":
        """Return the state of a sub-group that begins at this offset."""
        return cls(offset, offset)

    def hear(self, heard: QueueEvent) -> Reaction:
        """Enter the next state according to STEPS. Returns: the reaction."""
        do, self.rewind = STEPS[self.rewind, heard]
        return do

    def cut(self, end: int) -> None:
        """Forget what is behind the end of the queue; a client that was there has to come back."""
        if self.end > end:
            self.hear(QueueEvent.MEMBER_CAME)
        self.offset, self.own_from = min(self.offset, end), min(self.own_from, end)
        self.debts = [debt for debt in self.debts if debt.begin < end]
        for debt in self.debts:
            debt.end = min(debt.end, end)

    @property
    def end(self) -> int:
        """Return the offset behind everything that the sub-group has looked at."""
        return max(self.offset, self.own_from)

    def to_json(self) -> dict[str, Any]:
        return {
            "debts": [[each.of, each.begin, each.end, each.is_ahead] for each in self.debts],
            "offset": self.offset,
            "ownFrom": self.own_from,
            "rewind": int(self.rewind),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "QueueState":
        return cls(
            int(data["offset"]),
            int(data["ownFrom"]),
            [
                Debt(str(of), int(begin), int(end), bool(is_ahead))
                for of, begin, end, is_ahead in data["debts"]
            ],
            Rewind(int(data["rewind"])),
            FAR,
        )


QueueKey = tuple[str, int]


class SubGroup:
    """Members with one subscription.

    Attributes: id (unique in the group, also over time), sequence (its place in the order), subscriptions
    (by topic, without the retry topic), connections (its current members), queues, left_ms (wall time at
    which its last member left; 0 while it has members), departure (0 while it may come back; then a serial
    number of its departure: the order of departures decides what each of them has consumed).
    """

    __slots__ = (
        "_matches",
        "connections",
        "departure",
        "id",
        "left_ms",
        "queues",
        "sequence",
        "subscriptions",
    )

    def __init__(
        self, sequence: int, subscriptions: Mapping[str, SubscriptionData], left_ms: int
    ) -> None:
        self.sequence = sequence
        self.subscriptions = own_topics(subscriptions)
        self.id = f"{signature(subscriptions)}-{sequence}"
        self.connections: dict[Peer, str] = {}
        self.queues: dict[QueueKey, QueueState] = {}
        self.left_ms = left_ms
        self.departure = 0
        self._matches: dict[str, Matches] = {}

    @property
    def life(self) -> SubGroupState:
        """Return its state."""
        if self.departure > 0:
            return SubGroupState.DEPARTED
        return SubGroupState.AWAITED if self.left_ms else SubGroupState.ACTIVE

    @property
    def departed(self) -> bool:
        """Return True if it has left for good."""
        return self.departure > 0

    def __str__(self) -> str:
        asks = ", ".join(
            f"{topic}: {each.sub_string}" for topic, each in sorted(self.subscriptions.items())
        )
        return f"{self.id} [{asks}]"

    # ------------------------------------------------------------ what it asks

    def subscribes(self, topic: str) -> bool:
        """Return True if its members pull this topic; every sub-group pulls the group's retry topic."""
        return topic.startswith(RETRY_PREFIX) or topic in self.subscriptions

    def matches(self, topic: str, properties: bytes) -> bool:
        """Return True if it subscribes a message; a retry message counts as its original message."""
        if topic.startswith(RETRY_PREFIX):
            origin = get_property(properties, b"RETRY_TOPIC")
            if origin is None:
                return True
            topic = origin.decode("utf-8", "replace")
        found = self._matches.get(topic)
        if found is None:
            asked = self.subscriptions.get(topic)
            found = self._matches[topic] = _nothing if asked is None else _matches(asked)
        return found(properties)

    def codes(self, topic: str) -> frozenset[int] | None:
        """Return the codes of all tags that it subscribes; None if codes cannot tell."""
        asked = self.subscriptions.get(topic)
        if asked is None or not asked.is_tag or asked.is_all:
            return None
        return frozenset(asked.code_set)

    def covers(self, other: "SubGroup") -> bool:
        """Return True if it subscribes everything that the other does."""
        for topic, asked in other.subscriptions.items():
            own = self.subscriptions.get(topic)
            if own is None:
                return False
            if own.is_all or own.wish == asked.wish:
                continue
            if not (own.is_tag and asked.is_tag) or asked.is_all:
                return False
            if not asked.tags_set <= own.tags_set:
                return False
        return True

    # ------------------------------------------------------------ the file

    def to_json(self) -> dict[str, Any]:
        queues: dict[str, dict[int, Any]] = {}
        for (topic, queue_id), state in self.queues.items():
            queues.setdefault(topic, {})[queue_id] = state.to_json()
        return {
            "departure": self.departure,
            "leftTimestamp": self.left_ms,
            "queues": queues,
            "sequence": self.sequence,
            "subscriptions": [each.to_json() for each in self.subscriptions.values()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], now_ms: int) -> "SubGroup":
        """Parse a row of the file; one that had members may come back within its time, from `now_ms` on.

        Raises: KeyError, TypeError, ValueError if it is malformed.
        """
        asked = [SubscriptionData.from_json(each) for each in data["subscriptions"]]
        made = cls(
            int(data["sequence"]),
            {each.topic: each for each in asked},
            int(data["leftTimestamp"]) or now_ms,
        )
        made.departure = int(data["departure"])
        if LIFE[made.life, SubGroupEvent.RESTART] is SubGroupState.AWAITED:
            made.left_ms = now_ms
        for topic, queues in data["queues"].items():
            for queue_id, state in queues.items():
                made.queues[str(topic), int(queue_id)] = QueueState.from_json(state)
        return made


def merged(
    topics: Iterable[Mapping[str, SubscriptionData]], old: Mapping[str, SubscriptionData]
) -> list[SubscriptionData]:
    """Merge the members' subscriptions into the group's, as administrators see it.

    Tags are joined; of SQL92 expressions the newest is shown. A subscription that differs from `old` gets a
    greater subVersion, since only such a one replaces it.
    """
    by_topic: dict[str, list[SubscriptionData]] = {}
    for subscriptions in topics:
        for topic, asked in subscriptions.items():
            by_topic.setdefault(topic, []).append(asked)
    found = []
    for topic, asked_by_all in by_topic.items():
        newest = max(asked_by_all, key=lambda each: each.sub_version)
        shown = newest
        tags_only = [each for each in asked_by_all if each.is_tag]
        if len(tags_only) == len(asked_by_all):
            everything = any(each.is_all for each in tags_only)
            tags = set() if everything else set().union(*(each.tags_set for each in tags_only))
            codes = set() if everything else set().union(*(each.code_set for each in tags_only))
            shown = SubscriptionData(
                topic,
                newest.sub_string if tags == newest.tags_set else " || ".join(sorted(tags)) or "*",
                newest.expression_type,
                tags,
                codes,
                newest.sub_version,
            )
        before = old.get(topic)
        if (
            before is not None
            and before.wish != shown.wish
            and shown.sub_version <= before.sub_version
        ):
            shown.sub_version = before.sub_version + 1
        found.append(shown)
    return found


def _nothing(properties: bytes) -> bool:
    return False


def _everything(properties: bytes) -> bool:
    return True


def _matches(asked: SubscriptionData) -> Matches:
    if not asked.is_tag:
        return _matches_expression(asked)
    if asked.is_all:
        return _everything
    tags = {tag.encode() for tag in asked.tags_set}
    return lambda properties: get_property(properties, b"TAGS") in tags


def _matches_expression(asked: SubscriptionData) -> Matches:
    try:
        compiled = compile_expression(asked.sub_string)
    except SelectorError:
        # Refused when it was asked (CHECK_CLIENT_CONFIG); it must not take messages from others.
        return _nothing
    data = ConsumerFilterData(
        group="",
        topic=asked.topic,
        expression=asked.sub_string,
        expression_type=asked.expression_type,
        bloom=None,
        client_version=asked.sub_version,
        born_ms=0,
        dead_ms=0,
        compiled=compiled,
    )
    return ExpressionMessageFilter(data).properties or _everything
