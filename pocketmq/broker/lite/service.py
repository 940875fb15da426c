"""LiteService: who gets the messages of lite topics, what is out, and how old lite topics may be.

1. A message, an acknowledgement and the end of an invisible time make news (subscribers.py), and wake a
   receive that waits.
2. A lite topic goes when its last message is older than its parent says, and than minLiteTTl: with its
   offsets and what is out of it; read or not. All are looked at once in liteTtlCheckInterval, in turns.
   Ours: who has subscribed it stays subscribed; RocketMQ 5.5.0 forgets that without a word.
Owner: the broker. Does nothing before the first lite topic.
"""

import asyncio
from collections.abc import Iterator

from pocketmq.broker.lite.flight import Flights, Lane
from pocketmq.broker.lite.names import LiteGroup, light_queue, minutes_of
from pocketmq.broker.lite.packed import PARTS
from pocketmq.broker.lite.subscribers import Subscriber, Subscribers
from pocketmq.broker.lite.waiting import LiteWaiting
from pocketmq.broker.lite_topics import LiteTopics
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.remoting.transport.peer import Peer

_STEP_S = 0.1
_GIVEN_BACK_MS = 1_000
_LOOKED_AT_ONCE = 2_000
_DISPATCHED_AT_ONCE = 500


class LiteService:
    """See the head of the file."""

    def __init__(self, node: Node, tables: Tables, messages: Messages) -> None:
        config = node.config
        self._config, self._clock = config, node.clock
        self._groups, self._topics = tables.groups, tables.topics
        self._classic_offsets = tables.offsets
        self._side_tasks = messages.store.side_tasks
        self.topics: LiteTopics = messages.lite
        self.topics.listener = self._arrived
        self.subscribers = Subscribers()
        self.flights = Flights()
        self.waiting = LiteWaiting(node.clock, node.call_soon, lambda: config.max_pop_polling_size)
        self._busy = asyncio.Event()
        self._swept = 0
        self._sweep_rest = 0.0
        self._tick_ms = node.clock.monotonic_ms()

    def group(self, name: str) -> LiteGroup:
        """Return what a group says of lite topics."""
        return LiteGroup.of(self._groups.get(name))

    # ------------------------------------------------------------ offsets

    def committed(self, group: str, topic: str, key: int, name: str) -> int:
        """Return a group's next offset as it was set last; -1: it has none. name: "" if it is not known."""
        found = self.topics.offsets.get(group, key)
        if found < 0 and name:
            # An Apache broker's.
            found = self._classic_offsets.query(group, light_queue(topic, name), 0)
        return found

    def offset(self, one: Subscriber, key: int, name: str) -> int:
        """Return a group's next offset, within what there is."""
        index = self.topics.index
        least, end = index.min_offset(key), index.next_offset(key)
        found = self.committed(one.group, one.topic, key, name)
        if found < 0:
            # As for a pop: a young lite topic is read from its beginning.
            found = 0 if least == 0 else end - 1
        return min(max(found, least), end)

    def place(self, lane: Lane, offset: int) -> None:
        """Set a group's next offset. Raises: OSError."""
        self.topics.offsets.set(lane.group, lane.key, offset)

    def reset(self, lane: Lane, offset: int) -> None:
        """Set a group's next offset, whatever is out. Raises: OSError."""
        self.flights.forget(lane)
        self.place(lane, offset)

    def cut_offsets(self) -> None:
        """The log may have lost its end: let no offset pass over what comes there. Raises: OSError."""
        index, bound = self.topics.index, self._bound()
        self.topics.offsets.cut(
            (group, key, last.offset + 1)
            for part in range(PARTS)
            for key, last, parent in index.rows(part)
            for group in bound.get(parent or "", ())
        )

    # ------------------------------------------------------------ news

    def _arrived(self, key: int, parent: str) -> None:
        self.waiting.wake(self.subscribers.arrived(key, parent))

    def tell(self, lane: Lane) -> None:
        """There may be something for a group (invariant 1)."""
        self.waiting.wake(self.subscribers.tell(lane))

    def dispatch(self, group: str, client_id: str) -> Iterator[None]:
        """Make news of all that is not consumed. client_id: for this client only. Yields: now and then."""
        for one in list(self.subscribers.all()):
            if one.group != group or (client_id and one.client_id != client_id):
                continue
            for count, (key, name) in enumerate(list(one.names.items()), 1):
                if self.offset(one, key, name) < self.topics.index.next_offset(key):
                    self.tell(Lane(group, key))
                if not count % _DISPATCHED_AT_ONCE:
                    yield
            self.subscribers.look_again(one)
            self.wake()

    def look_through(self, one: Subscriber) -> None:
        """Note what a wildcard group has not consumed: of some lite topics, the others in later turns."""
        index, looked = self.topics.index, 0
        while (part := self.subscribers.cursor(one)) < PARTS and looked < _LOOKED_AT_ONCE:
            rows = [(key, last) for key, last, parent in index.rows(part) if parent == one.topic]
            looked += len(rows)
            self.subscribers.looked(
                one, [key for key, last in rows if self.offset(one, key, "") <= last.offset]
            )

    def wake(self) -> None:
        """Start the rounds: something is out, or waits."""
        self._busy.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._side_tasks.repeat("lite", self._round)

    async def _round(self) -> None:
        if not len(self.flights) and not self.waiting.count:
            self._busy.clear()
            await self._busy.wait()
        await asyncio.sleep(_STEP_S)
        self.step()

    def step(self) -> None:
        """Tell what is visible again, and answer what has waited long enough."""
        for lane in self.flights.due(self._clock.now_ms()):
            self.tell(lane)
        self.waiting.wake(self.subscribers.looking())
        self.waiting.check()

    def connection_closed(self, peer: Peer) -> None:
        """A client has gone: others get what it would have got, and what it had comes again."""
        for one in [each for each in self.subscribers.all() if each.peer is peer]:
            self.subscribers.leave(one)
        self.flights.release(peer, self._clock.now_ms() + _GIVEN_BACK_MS)
        self.waiting.connection_closed(peer)

    # ------------------------------------------------------------ age

    def tick(self) -> None:
        """Apply invariant 2; called once a second. Raises: OSError."""
        now_ms = self._clock.monotonic_ms()
        passed_ms, self._tick_ms = now_ms - self._tick_ms, now_ms
        if not self.topics.is_open:
            return
        for peer in {each.peer for each in self.subscribers.all() if each.peer.closed}:
            self.connection_closed(peer)
        self.topics.tick()
        self._sweep_rest += PARTS * passed_ms / self._config.lite_ttl_check_interval
        count = min(int(self._sweep_rest), PARTS)
        self._sweep_rest = min(self._sweep_rest - count, 1.0)
        if count:
            self._sweep(count)

    def _sweep(self, count: int) -> None:
        index, now_ms, bound = self.topics.index, self._clock.now_ms(), self._bound()
        limits: dict[str, int] = {}
        for _ in range(count):
            for key, last, parent in index.rows(self._swept):
                if parent is not None and parent not in limits:
                    limits[parent] = self._limit_ms(parent)
                limit_ms = 0 if parent is None else limits[parent]
                if parent is None or (limit_ms and now_ms - last.store_s * 1_000 > limit_ms):
                    self._remove(key, bound.get(parent or "", []))
            self._swept = (self._swept + 1) % PARTS

    def _bound(self) -> dict[str, list[str]]:
        """Return the groups of lite topics by their parent."""
        bound: dict[str, list[str]] = {}
        for name, group in self._groups.groups.items():
            if topic := LiteGroup.of(group).topic:
                bound.setdefault(topic, []).append(name)
        return bound

    def _limit_ms(self, parent: str) -> int:
        """Return how old a lite topic may be; 0: as old as it likes."""
        topic = self._topics.get(parent)
        minutes = 0 if topic is None else minutes_of(topic)
        return max(minutes * 60_000, self._config.min_lite_ttl) if minutes else 0

    def _remove(self, key: int, groups: list[str]) -> None:
        self.topics.index.remove(key)
        for group in groups:
            self.topics.offsets.remove(group, key)
            self.flights.forget(Lane(group, key))
