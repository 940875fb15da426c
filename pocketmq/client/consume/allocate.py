"""Which queues of a topic belong to which member of a group: the six allocation strategies (S14 to S20).

A strategy is a pure function of the sorted queues, the sorted client ids and one of those ids. All members of
a group must use the same one; each computes its own share without asking the others, so the shares are
disjoint and complete only because every member computes from the same two lists.
Source: org.apache.rocketmq.client.consumer.rebalance, 4.9.7 and 5.5.0; compared with those classes by
tests/client/test_allocate.py.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from pocketmq.model.message import MessageQueue
from pocketmq.remoting.errors import IllegalArgument


class AllocateStrategy(Protocol):
    """allocate(queues, client_ids, client_id): the queues of `client_id`.

    Both lists are sorted and not empty. A client id that is not in the list gets nothing.
    """

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy, for logs and QUERY_ASSIGNMENT."""
        ...

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]: ...


class _Named:
    """A plain function with RocketMQ's name."""

    def __init__(
        self,
        name: str,
        share: Callable[[Sequence[MessageQueue], Sequence[str], int], list[MessageQueue]],
    ) -> None:
        self.name = name
        self._share = share

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        return self._share(queues, client_ids, client_ids.index(client_id))

    def __repr__(self) -> str:
        return f"<allocate {self.name}>"


def sort_key(client_id: str) -> bytes:
    """Return the sort key of client ids: UTF-16 code units, like Java's String.compareTo
    (wire.md trap 23).
    """
    return client_id.encode("utf-16-be", "surrogatepass")


def _averagely(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], index: int
) -> list[MessageQueue]:
    average, remainder = divmod(len(queues), len(client_ids))
    # The first `remainder` members hold one queue more; shares lie side by side.
    start = index * average + min(index, remainder)
    return list(queues[start : start + average + (index < remainder)])


def _averagely_by_circle(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], index: int
) -> list[MessageQueue]:
    return list(queues[index :: len(client_ids)])


averagely: AllocateStrategy = _Named("AVG", _averagely)
"""The default: shares of equal size, side by side, the larger ones first."""

averagely_by_circle: AllocateStrategy = _Named("AVG_BY_CIRCLE", _averagely_by_circle)
"""One queue each in turn."""


def by_config(queues: Iterable[MessageQueue]) -> AllocateStrategy:
    """Allocate always these queues, whichever other members the group has."""
    return _Config(list(queues))


class _Config:
    # Unlike the others, Java's class does not ask whether the member is in the list.
    name = "CONFIG"

    def __init__(self, queues: list[MessageQueue]) -> None:
        self._queues = queues

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        return list(self._queues)


def by_machine_room(rooms: Collection[str]) -> AllocateStrategy:
    """Allocate equal shares of the queues of brokers named `room@broker` with a room in `rooms`.

    If they do not divide evenly, the first members get one more each.
    """
    mine = frozenset(rooms)

    def share(
        queues: Sequence[MessageQueue], client_ids: Sequence[str], index: int
    ) -> list[MessageQueue]:
        inside = [queue for queue in queues if _room(queue.broker_name) in mine]
        size, remainder = divmod(len(inside), len(client_ids))
        found = inside[size * index : size * (index + 1)]
        if index < remainder:
            found.append(inside[index + size * len(client_ids)])
        return found

    return _Named("MACHINE_ROOM", share)


def _room(broker_name: str) -> str | None:
    # Java's split drops empty parts at the end, so "room@" has one part and no room.
    parts = broker_name.split("@")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def machine_room_nearby(
    inner: AllocateStrategy,
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> AllocateStrategy:
    """Allocate each room's queues to its own members by `inner`; those of empty rooms, among all."""
    return _Nearby(inner, room_of_queue, room_of_client)


class _Nearby:
    def __init__(
        self,
        inner: AllocateStrategy,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    def __call__(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(self._named(self._room_of_queue(queue), queue), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for each in client_ids:
            clients_of.setdefault(self._named(self._room_of_client(each), each), []).append(each)
        own = self._room_of_client(client_id)
        found: list[MessageQueue] = []
        if own in queues_of:
            found += self._inner(queues_of.pop(own), clients_of[own], client_id)
        for room in sorted(queues_of, key=sort_key):
            if room not in clients_of:
                found += self._inner(queues_of[room], client_ids, client_id)
        return found

    @staticmethod
    def _named(room: str, whose: object) -> str:
        if not room:
            raise IllegalArgument(f"the resolver must name a machine room for {whose}")
        return room


def md5_point(text: str) -> int:
    """Return a point on the ring: the first four bytes of the MD5, as an unsigned number."""
    digest = hashlib.md5(text.encode("utf-8"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def consistent_hash(
    virtual_nodes: int = 10, hash_function: Callable[[str], int] = md5_point
) -> AllocateStrategy:
    """Allocate by consistent hashing: each queue to the next of the `virtual_nodes` points per member."""
    if virtual_nodes < 0:
        raise IllegalArgument(f"virtual_nodes must not be negative, not {virtual_nodes}")

    def share(
        queues: Sequence[MessageQueue], client_ids: Sequence[str], index: int
    ) -> list[MessageQueue]:
        ring: dict[int, str] = {}
        for each in client_ids:
            for number in range(virtual_nodes):
                # A later member takes over a point that is there already, as in Java's TreeMap.
                ring[hash_function(f"{each}-{number}")] = each
        points = sorted(ring)
        if not points:
            return []
        found = []
        for queue in queues:
            at = bisect_left(points, hash_function(queue.to_java()))
            if ring[points[at % len(points)]] == client_ids[index]:
                found.append(queue)
        return found

    return _Named("CONSISTENT_HASH", share)
