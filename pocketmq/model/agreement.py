"""Agreement: whether the members of a group subscribe a topic alike, and what is lost if not. Ours.

RocketMQ keeps one subscription for each topic of a group. A member that subscribes something else silently
loses messages.

1. Members whose subscriptions match the same messages form a camp, however these are written. Two or more
   camps are a difference. A group's retry topic is left out: every member subscribes it automatically.
2. A pull consumer chooses its queues and may have no subscription: then it is in no camp.
3. A queue delivers to its holder what passes the group's subscription and then the holder's own. Whatever
   else another camp subscribes is lost in that queue.
The broker's guard, the administrators' views and all user interfaces compare with this module only.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pocketmq.model.names import is_retry_topic
from pocketmq.model.subscription import SubscriptionData, Wish

_PULLS = "CONSUME_ACTIVELY"
_EVERYTHING: Wish = ("TAG", ())
# Clients named in a sentence; the rest is counted.
_NAMED_MAX = 4
ADVICE = "give each subscription its own group, let all members subscribe alike, or set groupMode=isolate"

Subscriptions = Mapping[str, SubscriptionData]


@dataclass(frozen=True, slots=True)
class Camp:
    """Members with equal subscriptions of a topic. wish and expression are None without a subscription."""

    wish: Wish | None
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

    holder: the client that holds these queues; None if no client receives their messages.
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
class GroupFinding:
    """One topic of a group whose members differ.

    since_ms: wall time since which they have differed, None if unknown; raised: it has lasted long enough
    to be reported; stored: the expression by which the broker filters now, None if the group's subscription
    lacks the topic.
    """

    group: str
    topic: str
    since_ms: int | None
    raised: bool
    stored: str | None
    camps: tuple[Camp, ...]
    losses: tuple[Loss, ...]

    @property
    def text(self) -> str:
        """Return one sentence for logs and terminals."""
        camps = "; ".join(f"{_asks(camp)}: {_names(camp.client_ids)}" for camp in self.camps)
        losses = "; ".join(
            f"queue {','.join(map(str, loss.queue_ids))} ({loss.holder or 'no client reads it'}) "
            f"loses {loss.lost} of {_names(loss.lost_to)}"
            for loss in self.losses
        )
        stored = "no longer knows the topic" if self.stored is None else f"filters by {self.stored}"
        since = "" if self.since_ms is None else f" since {_time(self.since_ms)}"
        return (
            f"members of group {self.group} subscribe to topic {self.topic} differently{since}: "
            f"{camps}. The broker {stored}. {losses or 'Nothing is being lost'}. "
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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse a broker's answer, which leaves out what is None. A camp's wish is known by its text only."""
        return cls(
            str(data["group"]),
            str(data["topic"]),
            data.get("since"),
            data["raised"] is True,
            data.get("stored"),
            tuple(_camp(each) for each in data["camps"]),
            tuple(
                Loss(
                    tuple(each["queueIds"]), each.get("holder"), each["lost"], tuple(each["lostTo"])
                )
                for each in data["losses"]
            ),
        )


def _camp(data: Mapping[str, Any]) -> Camp:
    kind, text = data.get("expressionType"), data.get("expression")
    asked = None if kind is None else (str(kind), (str(text),))
    return Camp(asked, text, tuple(data["clientIds"]))


# ------------------------------------------------------------ who asks what


def own_topics(subscriptions: Subscriptions) -> dict[str, SubscriptionData]:
    """Return a subscription without retry topics, sorted by topic."""
    return {
        topic: subscriptions[topic] for topic in sorted(subscriptions) if not is_retry_topic(topic)
    }


def same(one: Subscriptions, other: Subscriptions) -> bool:
    """Return True if two members subscribe every topic alike."""
    return not differing(one, other)


def differing(one: Subscriptions, other: Subscriptions) -> list[str]:
    """Return the topics that two subscriptions treat differently."""
    topics = own_topics(one) | own_topics(other)
    return sorted(topic for topic in topics if _wish(one, topic) != _wish(other, topic))


def signature(subscriptions: Subscriptions) -> str:
    """Return eight hex digits that are equal for equal subscriptions."""
    asked = {
        topic: [each.wish[0], *each.wish[1]] for topic, each in own_topics(subscriptions).items()
    }
    text = json.dumps(asked, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def camps(
    members: Iterable[tuple[str, Subscriptions]], topic: str, consume_type: str = ""
) -> list[Camp]:
    """Group members, given as (client id, subscriptions), by their wish for the topic; largest camp first."""
    found: dict[Wish | None, tuple[str | None, list[str]]] = {}
    for client_id, subscriptions in members:
        asked = subscriptions.get(topic)
        if asked is not None:
            found.setdefault(asked.wish, (asked.expression, []))[1].append(client_id)
        elif consume_type != _PULLS:
            found.setdefault(None, (None, []))[1].append(client_id)
    made = [
        Camp(wish, expression, tuple(sorted(clients)))
        for wish, (expression, clients) in found.items()
    ]
    return sorted(made, key=lambda camp: (-len(camp.client_ids), camp.client_ids))


def differences(
    members: Sequence[tuple[str, Subscriptions]], consume_type: str = ""
) -> dict[str, list[Camp]]:
    """Return the camps of each topic that the members subscribe differently."""
    topics = sorted({topic for _, each in members for topic in own_topics(each)})
    found = {topic: camps(members, topic, consume_type) for topic in topics}
    return {topic: each for topic, each in found.items() if len(each) > 1}


def _wish(subscriptions: Subscriptions, topic: str) -> Wish | None:
    asked = subscriptions.get(topic)
    return None if asked is None else asked.wish


# ------------------------------------------------------------ what is lost


def losses(
    found: Sequence[Camp], stored: SubscriptionData | None, holders: Mapping[int, str | None]
) -> list[Loss]:
    """Apply invariant 3, merging queues with equal results. holders: queue id -> the client that holds it."""
    wish_of = {client: camp.wish for camp in found for client in camp.client_ids}
    together: dict[tuple[str | None, str, tuple[str, ...]], list[int]] = {}
    for queue, client in holders.items():
        own = None if client is None else wish_of.get(client)
        holder = None if own is None else client
        given = both(None if stored is None else stored.wish, own)
        for camp in found:
            lost = lost_of(camp.wish, given)
            if lost is not None:
                together.setdefault((holder, lost, camp.client_ids), []).append(queue)
    return [
        Loss(tuple(queue_ids), holder, lost, clients)
        for (holder, lost, clients), queue_ids in together.items()
    ]


def both(stored: Wish | None, own: Wish | None) -> Wish | None:
    """Return what passes the group's subscription and then the member's own; None: nothing.

    A mix with SQL92 is represented by its two texts, since only messages can tell what passes both.
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


def lost_of(wish: Wish | None, given: Wish | None) -> str | None:
    """Return the part of a wish that is not given; None: nothing, or there was no wish.

    >>> lost_of(("TAG", ("A", "B")), ("TAG", ("B",))), lost_of(("TAG", ()), ("TAG", ("B",)))
    ('A', 'everything but B')
    >>> lost_of(("TAG", ("A",)), ("TAG", ())), lost_of(None, None), lost_of(("TAG", ()), None)
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


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
