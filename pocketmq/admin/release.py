"""Release: predicts what a rolled-out change of subscriptions does to messages. PocketMQ only.

During the roll-out old and new members run side by side. A wish is a member's subscription of a topic;
messages that pass the wishes of all members, whichever of them heartbeats last and holds the queue, are
"common" (agreement, invariant 3).

    mode         wishes of new members, while an old one is there   wishes of old members only
    compatible   lost, except what is common                         lost to them, then unwanted
    strict       lost, except what the old subscription matches      consumed until the last has left
    isolate      consumed                                            consumed; then kept for a while

1. A topic that some members do not subscribe is not read in their queues: delayed, not lost. With
   LAST_OFFSET a queue without an offset begins at its end, so earlier messages are lost.
2. A group without members consumes nothing: if all old members stop before the first new one starts, the new
   ones get everything they subscribe from the group's offsets on.
3. SQL92 is not compared: different texts are taken to match different messages. Clients do not filter by it,
   so members receive what another expression matches.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pocketmq.admin.admin import Admin
from pocketmq.admin.checkup import messages_lost
from pocketmq.admin.views.group import group_view
from pocketmq.client.declared_subscriptions import DeclaredSubscriptions
from pocketmq.client.errors import NoRoute
from pocketmq.client.network.heartbeat import ConsumeFromWhere, MessageModel
from pocketmq.model.agreement import Subscriptions, both, lost_of, own_topics, same
from pocketmq.model.names import is_retry_topic
from pocketmq.model.subscription import SQL92, TAG, Wish
from pocketmq.remoting.errors import IllegalArgument

_SAMPLE_MAX = 64


class Effect(StrEnum):
    """What happens to messages.

    DROPPED: no entry subscribes them any more, and some may still be unread. UNWANTED: delivered to members
    that did not subscribe them.
    """

    LOST = "lost"
    DELAYED = "delayed"
    TWICE = "twice"
    UNWANTED = "unwanted"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Consequence:
    """One effect on messages of a topic (`*`: any topic)."""

    effect: Effect
    group: str
    topic: str
    messages: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "effect": self.effect.value,
            "group": self.group,
            "topic": self.topic,
            "messages": self.messages,
            "why": self.why,
        }


@dataclass(slots=True)
class TopicNow:
    """A topic before the release. sample: the tags of its newest messages; exists: whether it has a route."""

    lag: int = 0
    stored: int = 0
    exists: bool = True
    sample: Counter[str] = field(default_factory=Counter)

    def recent(self, wish: Wish, given: Wish | None) -> int:
        """Return how many of the newest messages a tag wish matches but `given` does not."""

        def passes(asked: Wish | None, tag: str) -> bool:
            return asked is not None and asked[0] == TAG and (not asked[1] or tag in asked[1])

        return sum(
            count
            for tag, count in self.sample.items()
            if passes(wish, tag) and not passes(given, tag)
        )


@dataclass(slots=True)
class Running:
    """A group before the release: its members' subscriptions, without duplicates."""

    group: str
    camps: list[Subscriptions] = field(default_factory=list)
    model: str = MessageModel.CLUSTERING.value
    mode: str = "compatible"
    consumes_from: str = ConsumeFromWhere.LAST_OFFSET.value
    has_offsets: bool = False
    topics: dict[str, TopicNow] = field(default_factory=dict)

    def topic(self, name: str) -> TopicNow:
        return self.topics.setdefault(name, TopicNow())


@dataclass(slots=True)
class ReleasePlan:
    """The release of one group. steps: an order of restarts that avoids what an order can avoid; lost:
    messages that the group has lost before.
    """

    group: str
    consequences: list[Consequence]
    steps: list[str]
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "consequences": [each.to_json() for each in self.consequences],
            "steps": self.steps,
            "lost": self.lost,
        }


def plan(
    now: Running, future: Sequence[DeclaredSubscriptions], replaced: Running | None = None
) -> ReleasePlan:
    """Plan the release of one group. future: its entries; replaced: the group whose work it continues."""
    return _Planner(now, future, replaced).plan()


class _Planner:
    def __init__(
        self, now: Running, future: Sequence[DeclaredSubscriptions], replaced: Running | None
    ) -> None:
        self._now = now
        self._future = future
        self._replaced = replaced
        self._found: list[Consequence] = []
        self._before: list[str] = []
        self._after: list[str] = []
        self._must_stop = False

    def plan(self) -> ReleasePlan:
        self._look_at_group()
        names = {topic for each in self._future for topic in own_topics(each.subscriptions)}
        names |= {topic for camp in self._now.camps for topic in own_topics(camp)}
        for topic in sorted(names):
            self._look_at(topic)
        return ReleasePlan(self._now.group, self._found, self._steps())

    def _say(self, effect: Effect, topic: str, messages: str, why: str) -> None:
        self._found.append(Consequence(effect, self._now.group, topic, messages, why))

    # ------------------------------------------------------------ the group

    def _look_at_group(self) -> None:
        now, new = self._now, self._future[0]
        models = sorted({each.model.value for each in self._future})
        if now.camps and models != [now.model]:
            self._must_stop = True
            text = (
                f"the group is {now.model} and becomes {', '.join(models)}: a broadcasting member "
                f"keeps its offsets on its own machine, a clustering group keeps them at the broker"
            )
            self._say(Effect.TWICE, "*", "whatever the other kind has read", text)
        old = self._replaced
        if old is None or now.has_offsets:
            return
        self._before.append(
            f"stop all members of {old.group}, then copy its offsets: "
            f"pocketmq offset copy {old.group} {now.group} TOPIC, for each topic"
        )
        for topic, each in old.topics.items():
            if topic not in new.subscriptions:
                continue
            if new.consume_from is ConsumeFromWhere.FIRST_OFFSET:
                read = each.stored - each.lag
                why = f"{now.group} has no offsets and begins at the first message"
                self._say(Effect.TWICE, topic, f"{read} that {old.group} has read", why)
            elif each.lag:
                why = f"{now.group} has no offsets and begins at the end"
                self._say(Effect.LOST, topic, f"{each.lag} that {old.group} has not read", why)

    # ------------------------------------------------------------ a topic

    def _look_at(self, topic: str) -> None:
        old = [_wish(camp, topic) for camp in self._now.camps]
        new = [_wish(each.subscriptions, topic) for each in self._future]
        if not self._now.topic(topic).exists and any(new):
            why = "no name server knows the topic; members keep looking until it exists"
            self._say(Effect.DELAYED, topic, "all", why)
            self._before.append(f"pocketmq topic create {topic}")
        self._look_at_the_end(topic, new)
        if not old or set(old) == set(new):
            return
        # Members that differ for good lose the same while they come.
        if self._now.mode != "isolate" and len(set(new)) == 1:
            self._look_at_lost(topic, old, new)
            self._look_at_unread(topic, old, new)
        self._look_at_dropped(topic, old, new)

    def _look_at_the_end(self, topic: str, new: Sequence[Wish | None]) -> None:
        """Note the effects of members that differ permanently, according to the file."""
        if len(set(new)) < 2 or self._now.mode == "isolate":
            return
        wished = [each for each in new if each is not None]
        for wish in sorted(set(wished)):
            lost = lost_of(wish, _given(wish, wished))
            if lost is not None:
                why = "members in the file differ: give each subscription its own group"
                self._say(Effect.LOST, topic, lost, why)
        if None in new:
            why = (
                "members that do not subscribe to it are given some of its queues and read nothing"
            )
            self._say(Effect.DELAYED, topic, "those in these queues", why)

    def _look_at_lost(
        self, topic: str, old: Sequence[Wish | None], new: Sequence[Wish | None]
    ) -> None:
        strict = self._now.mode == "strict"
        before = [each for each in old if each is not None]
        beside = before if strict else [*before, *(each for each in new if each is not None)]
        if not before:
            return
        for wish in sorted({each for each in new if each is not None}):
            given = _given(wish, beside)
            lost = lost_of(wish, given)
            if lost is None:
                continue
            recent = self._now.topic(topic).recent(wish, given)
            sent = f"; {recent} of the newest messages are affected" if recent else ""
            why = "until the last old member, which skips them, has left" + sent
            self._say(Effect.LOST, topic, lost, why)
            if recent or wish[0] != TAG or not wish[1]:
                self._must_stop = True
            else:
                self._after.append(f"only then send {lost} to {topic}")
        if strict:
            why = "new members are refused until the last old one has left; they retry every 30 s"
            self._say(Effect.DELAYED, topic, "all, for up to 30 s", why)
        elif len(set(beside)) > 1 and any(each[0] == SQL92 for each in beside):
            self._must_stop = True
            why = "brokers filter by the expression of the last member to change it, clients by tags only"
            self._say(
                Effect.UNWANTED, topic, "whatever another member's expression lets through", why
            )

    def _look_at_unread(
        self, topic: str, old: Sequence[Wish | None], new: Sequence[Wish | None]
    ) -> None:
        if None in old and any(new):
            why = "old members do not subscribe to it: it is read once the last of them has left"
            self._say(Effect.DELAYED, topic, "all", why)
            ends = any(each.consume_from is ConsumeFromWhere.LAST_OFFSET for each in self._future)
            if ends and not self._now.topic(topic).lag:
                why = "LAST_OFFSET: a queue that no new member has had yet starts at its end"
                self._say(
                    Effect.LOST, topic, "whatever is sent until the last old member has left", why
                )
            self._after.append(f"only then send to {topic}")
        if None in new and any(old):
            why = "new members do not subscribe to it: the broker refuses it to old ones (code 24)"
            self._say(Effect.DELAYED, topic, "all", why)

    def _look_at_dropped(
        self, topic: str, old: Sequence[Wish | None], new: Sequence[Wish | None]
    ) -> None:
        wished = {each for each in new if each is not None}
        for wish in sorted({each for each in old if each is not None} - wished):
            gone = lost_of(wish, _asked_again(wish, wished))
            if gone is None:
                continue
            now = self._now.topic(topic)
            why = f"no member asks for it any more; the group is {now.lag} messages behind"
            if self._now.mode == "isolate":
                why += "; they are kept for isolateKeepTime, and remembered for isolateRememberTime"
            self._say(Effect.DROPPED, topic, gone, why)
            self._before.append(
                f"stop sending {gone} to {topic}, and wait until the group has caught up"
            )

    # ------------------------------------------------------------ what to do

    def _steps(self) -> list[str]:
        if not self._now.camps:
            return [*self._before, "start the new members"]
        rolling = "replace the members in any order"
        stopped = "stop every old member, then start the new ones"
        if self._must_stop:
            return list(dict.fromkeys([*self._before, stopped]))
        return list(dict.fromkeys([*self._before, rolling, *self._after]))


def _wish(subscriptions: Subscriptions, topic: str) -> Wish | None:
    asked = subscriptions.get(topic)
    return None if asked is None else asked.wish


def _given(wish: Wish, beside: Sequence[Wish]) -> Wish | None:
    """Return the part of a wish that every other member lets through; None: nothing.

    >>> _given(("TAG", ("A", "B")), [("TAG", ("B", "C"))])
    ('TAG', ('B',))
    """
    others = [each for each in beside if each != wish]
    mixed = sorted({_text(each) for each in others if SQL92 in (each[0], wish[0])})
    if mixed:
        return SQL92, (" and ".join(mixed),)
    given: Wish | None = wish
    for other in others:
        given = both(given, other)
    return given


def _asked_again(wish: Wish, wished: Iterable[Wish]) -> Wish | None:
    """Return the part of a wish that others subscribe; None: nothing.

    >>> _asked_again(("TAG", ("A", "B")), [("TAG", ("B",)), ("TAG", ("C",))])
    ('TAG', ('B', 'C'))
    """
    others = sorted(wished)
    if not others or (TAG, ()) in others:
        return wish if others else None
    mixed = [_text(each) for each in others if SQL92 in (each[0], wish[0])]
    if mixed:
        return SQL92, (" or ".join(mixed),)
    return TAG, tuple(sorted({tag for _, tags in others for tag in tags}))


def _text(wish: Wish) -> str:
    return " || ".join(wish[1]) or "*"


# ------------------------------------------------------------ what runs


async def running(admin: Admin, group: str, topics: Iterable[str] = ()) -> Running:
    """Return a group as it runs now, with these topics besides its own. Raises: PocketMQError."""
    view = await group_view(admin, group)
    found = Running(group, mode=view.mode or "compatible", has_offsets=bool(view.progress))
    if view.connection is not None:
        found.model = view.connection.message_model
        found.consumes_from = view.connection.consume_from_where
        asked = [each.own for each in view.members if each.own is not None] or [view.stored]
        for own in asked:
            if not any(same(own, known) for known in found.camps):
                found.camps.append(own)
    names = {row.queue.topic for row in view.progress}.union(topics, *found.camps)
    for topic in sorted(name for name in names if not is_retry_topic(name)):
        found.topics[topic] = await _topic_now(admin, topic, view.lag_in(topic))
    return found


async def _topic_now(admin: Admin, topic: str, lag: int) -> TopicNow:
    now = TopicNow(lag)
    try:
        rows = await admin.topics.status(topic, partial=True)
    except NoRoute:
        now.exists = False
        return now
    now.stored = sum(row.count for row in rows)
    for row in [row for row in rows if row.max_offset > row.min_offset][:_SAMPLE_MAX]:
        messages, _ = await admin.messages.last(row.queue, max(1, _SAMPLE_MAX // len(rows)))
        now.sample.update(message.tags or "" for message in messages)
    return now


async def plan_release(admin: Admin, entries: Iterable[DeclaredSubscriptions]) -> list[ReleasePlan]:
    """Compare entries with what runs; return a plan for each group, sorted by name."""
    by_group: dict[str, list[DeclaredSubscriptions]] = {}
    for entry in entries:
        by_group.setdefault(entry.group, []).append(entry)
    if not by_group:
        raise IllegalArgument("no group is named: see `pocketmq subs export`")
    found = []
    for group, future in sorted(by_group.items()):
        topics = {topic for each in future for topic in each.subscriptions}
        now = await running(admin, group, topics)
        old = next((each.replaces for each in future if each.replaces), None)
        made = plan(now, future, None if old is None else await running(admin, old))
        made.lost = sum((await messages_lost(admin, group)).values())
        found.append(made)
    return found


def described(now: Running) -> list[DeclaredSubscriptions]:
    """Return what runs, as entries of a file."""
    model, begins = MessageModel(now.model), ConsumeFromWhere(now.consumes_from)
    return [
        DeclaredSubscriptions(now.group, own_topics(camp), model, begins)
        for camp in now.camps
        if own_topics(camp)
    ]
