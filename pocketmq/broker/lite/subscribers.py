"""Subscribers: which client of which group has subscribed which lite topics, and where there is news.

1. News of a lite topic goes to one client of each group that subscribed it, in turn; the client's next
   receive looks there. A client that leaves hands its news on.
2. In an exclusive group a lite topic belongs to the client that subscribed it last. `taken` are those that
   lose it, which are to be told.
3. In a wildcard group every client gets any lite topic. News beyond NEWS_MAX is not kept: the group looks
   through all lite topics again (`is_behind`).
No clock, no file. Keys are those of the index.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pocketmq.broker.lite.flight import Lane
from pocketmq.broker.lite.packed import PARTS
from pocketmq.remoting.transport.peer import Peer

NEWS_MAX = 4_000


@dataclass(slots=True, eq=False)
class Subscriber:
    """A client in a group. names: its lite topics, by key; news: keys, oldest first; seen_ms: when it last
    asked for something, wall time."""

    client_id: str
    group: str
    topic: str
    peer: Peer
    names: dict[int, str] = field(default_factory=dict)
    news: dict[int, None] = field(default_factory=dict)
    seen_ms: int = 0


@dataclass(slots=True, eq=False)
class _WildcardGroup:
    members: dict[Subscriber, None] = field(default_factory=dict)
    news: dict[int, None] = field(default_factory=dict)
    # From which part of the index on it is still to look through; PARTS: it is not.
    cursor: int = 0
    is_behind: bool = False


class Subscribers:
    """See the head of the file. count: of subscriptions, a client and a lite topic each."""

    def __init__(self) -> None:
        self._of: dict[tuple[Peer, str], Subscriber] = {}
        self._by_key: dict[int, dict[str, list[Subscriber]]] = {}
        # By parent topic and group.
        self._wildcards: dict[str, dict[str, _WildcardGroup]] = {}
        self.count = 0

    def get(self, peer: Peer, group: str) -> Subscriber | None:
        return self._of.get((peer, group))

    def enter(self, peer: Peer, client_id: str, group: str, topic: str, now_ms: int) -> Subscriber:
        """Return a client's entry, made if need be."""
        found = self._of.get((peer, group))
        if found is None:
            found = self._of[peer, group] = Subscriber(client_id, group, topic, peer)
        found.seen_ms = now_ms
        return found

    def all(self) -> Iterator[Subscriber]:
        yield from self._of.values()

    @property
    def wildcard_count(self) -> int:
        """Return how many clients get all lite topics."""
        of = (group for groups in self._wildcards.values() for group in groups.values())
        return sum(len(group.members) for group in of)

    def named(self, client_id: str, group: str) -> Subscriber | None:
        """Return the client of that id, whatever its peer."""
        found = (each for each in self._of.values() if each.client_id == client_id)
        return next((each for each in found if each.group == group), None)

    def who(self, key: int, topic: str) -> Iterator[tuple[str, str]]:
        """Yield client and group of each that gets a lite topic's messages; a wildcard group as one, `*`."""
        for members in self._by_key.get(key, {}).values():
            yield from ((each.client_id, each.group) for each in members)
        yield from (("*", group) for group in self._wildcards.get(topic, {}))

    def of(self, key: int, topic: str) -> Iterator[Subscriber]:
        """Yield those that get a lite topic's messages."""
        for members in self._by_key.get(key, {}).values():
            yield from members
        for group in self._wildcards.get(topic, {}).values():
            yield from group.members

    # ------------------------------------------------------------ subscriptions

    def add(self, one: Subscriber, key: int, name: str) -> bool:
        """Subscribe a lite topic. Returns: whether it was not subscribed."""
        if key in one.names:
            return False
        one.names[key] = name
        self._by_key.setdefault(key, {}).setdefault(one.group, []).append(one)
        self.count += 1
        return True

    def remove(self, one: Subscriber, key: int) -> bool:
        """Unsubscribe a lite topic; False if it was not subscribed."""
        if one.names.pop(key, None) is None:
            return False
        groups = self._by_key[key]
        groups[one.group].remove(one)
        if not groups[one.group]:
            del groups[one.group]
            if not groups:
                del self._by_key[key]
        self.count -= 1
        if key in one.news:
            del one.news[key]
            self.tell(Lane(one.group, key))
        return True

    def taken(self, one: Subscriber, key: int) -> list[Subscriber]:
        """Unsubscribe a lite topic for all others of the group. Returns: them."""
        others = [each for each in self._by_key.get(key, {}).get(one.group, ()) if each is not one]
        for each in others:
            self.remove(each, key)
        return others

    def add_all(self, one: Subscriber) -> None:
        """A client of a wildcard group gets all."""
        group = self._wildcards.setdefault(one.topic, {}).setdefault(one.group, _WildcardGroup())
        group.members[one] = None

    def leave(self, one: Subscriber) -> None:
        """A client leaves its group."""
        for key in list(one.names):
            self.remove(one, key)
        self._of.pop((one.peer, one.group), None)
        groups = self._wildcards.get(one.topic, {})
        group = groups.get(one.group)
        if group is not None and one in group.members:
            del group.members[one]
            if not group.members:
                del groups[one.group]

    def forget(self, key: int) -> None:
        """Drop the subscriptions of a lite topic."""
        for members in list(self._by_key.get(key, {}).values()):
            for one in list(members):
                self.remove(one, key)

    # ------------------------------------------------------------ news

    def arrived(self, key: int, topic: str) -> list[Subscriber]:
        """Note news in a lite topic. Returns: who may be waiting for it."""
        found = [self._next(key, members) for members in self._by_key.get(key, {}).values()]
        for group in self._wildcards.get(topic, {}).values():
            found += self._note_in(group, key)
        return found

    def _next(self, key: int, members: list[Subscriber]) -> Subscriber:
        one = next((each for each in members if key in each.news), None)
        if one is None:
            # In turn (invariant 1).
            one = members.pop(0)
            members.append(one)
            one.news[key] = None
        return one

    def _note_in(self, group: _WildcardGroup, key: int) -> list[Subscriber]:
        if len(group.news) < NEWS_MAX:
            group.news[key] = None
        else:
            group.is_behind = True
        return list(group.members)

    def tell(self, lane: Lane) -> list[Subscriber]:
        """Note that there may be something for one group. Returns: who may be waiting for it."""
        members = self._by_key.get(lane.key, {}).get(lane.group)
        if members:
            return [self._next(lane.key, members)]
        for groups in self._wildcards.values():
            if (group := groups.get(lane.group)) is not None:
                return self._note_in(group, lane.key)
        return []

    def take_news(self, one: Subscriber) -> Iterator[int]:
        """Yield the lite topics with news for a client, each no news any more."""
        group = self._wildcards.get(one.topic, {}).get(one.group)
        news = one.news if group is None else group.news
        for _ in range(len(news)):
            key = next(iter(news), None)
            if key is None:
                return
            del news[key]
            yield key

    def cursor(self, one: Subscriber) -> int:
        """Return the part of the index that a wildcard group is to look at next; PARTS: none."""
        group = self._wildcards.get(one.topic, {}).get(one.group)
        if group is None or len(group.news) >= NEWS_MAX:
            return PARTS
        if group.cursor == PARTS and group.is_behind:
            group.cursor, group.is_behind = 0, False
        return group.cursor

    def looked(self, one: Subscriber, keys: Iterable[int]) -> None:
        """Note what was found in that part; the next one follows."""
        group = self._wildcards[one.topic][one.group]
        group.cursor += 1
        for key in keys:
            self._note_in(group, key)

    def look_again(self, one: Subscriber) -> None:
        """Let a client's group, if it is a wildcard group, look through the whole index again."""
        group = self._wildcards.get(one.topic, {}).get(one.group)
        if group is not None:
            group.cursor = 0

    def looking(self) -> list[Subscriber]:
        """Return a client of each group that has still to look through the index."""
        return [
            next(iter(group.members))
            for groups in self._wildcards.values()
            for group in groups.values()
            if group.cursor < PARTS or group.is_behind
        ]
