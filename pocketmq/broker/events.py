"""Events: a typed list of what the parts of a broker tell each other.

A part receives the events when it is created and calls its own: `events.offsets_removed(group, topic)`.
assembly.connect alone subscribes listeners; they are called synchronously, in the order given there. No part
holds a function of another.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol

if TYPE_CHECKING:
    from pocketmq.broker.groups.consumer_group import ConsumerGroup
    from pocketmq.model.subscription import SubscriptionData
    from pocketmq.model.tables import TopicConfig
    from pocketmq.remoting.transport.peer import Peer

P = ParamSpec("P")


class Event(Generic[P]):
    """One kind of event: calling it calls every listener."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)

    def to(self, *listeners: Callable[P, object]) -> None:
        """Add listeners behind those already there."""
        self._listeners += listeners


class Events:
    """All events; a comment on each says when it happens and what its arguments are."""

    def __init__(self) -> None:
        # Topics were created or changed (these), or deleted (none); the table is on disk.
        self.topics_changed: Event[[list[TopicConfig]]] = Event()
        # An administrator has changed settings: their names.
        self.settings_changed: Event[[set[str]]] = Event()
        # A member joined, left, or changed its subscription.
        self.members_changed: Event[[ConsumerGroup]] = Event()
        # A group's members must rebalance: group, connections to notify.
        self.must_rebalance: Event[[str, list[Peer]]] = Event()
        # A heartbeat was accepted: group, the member's subscriptions.
        self.heartbeat_taken: Event[[str, list[SubscriptionData]]] = Event()
        # A group's last member has left.
        self.group_offline: Event[[str]] = Event()
        # A group's offsets of a topic were removed: group, topic.
        self.offsets_removed: Event[[str, str]] = Event()
        # A group was deleted, and its offsets before, if they were to be: group.
        self.group_deleted: Event[[str]] = Event()
        # An administrator sets a group's offset, which is not changed yet: group, topic, queue id, offset,
        # and a text: who did it, by which command.
        self.offset_set: Event[[str, str, int, int, str]] = Event()
        # A group's offset was set from outside: group, topic, queue id, offset.
        self.offset_copied: Event[[str, str, int, int]] = Event()
        # An administrator resets a group's offset, which is not changed yet: the same arguments.
        self.offset_reset: Event[[str, str, int, int]] = Event()
        # The messages available to held pulls of a topic have changed: topic.
        self.shares_changed: Event[[str]] = Event()
        # There are messages to pop (again): topic, group.
        self.poppable: Event[[str, str]] = Event()
        # A pop is held.
        self.pop_held: Event[[]] = Event()
        # A send waits for slaves: they are to be sent the log in the next turn of the loop.
        self.slaves_awaited: Event[[]] = Event()
        # Accounts have lost rights, and connections over which they were used are closed.
        self.rights_lost: Event[[]] = Event()
        # A client's connection closed.
        self.connection_closed: Event[[Peer]] = Event()
        self.arrivals = Arrivals()


class EntryWaiter(Protocol):
    """A part that waits for new queue entries."""

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """Handle a new entry of a queue, which now ends at max_offset."""
        ...

    def awaited(self, topic: str, queue_id: int) -> object:
        """Return a true value if `arrived` has anything to do for that queue."""
        ...


class Arrivals:
    """New queue entries, passed on to those that wait for them: the store's listener.

    This is the hottest path, so it is not an Event: until the first pop waits, pops cost a send nothing.
    """

    __slots__ = ("_held", "_log_end", "_readable", "_waiters", "arrived", "awaited", "bit_map_of")

    def __init__(self) -> None:
        self._waiters: tuple[EntryWaiter, ...] = ()
        # Entries that may not be read yet, with the log's end when they came.
        self._held: deque[tuple[int, tuple[str, int, int, int, int, bytes]]] = deque()
        self._log_end: Callable[[], int] = _nothing
        self._readable: Callable[[], int] = _nothing
        # (topic, queue id, offset behind the entry, tags code, store ms, properties)
        self.arrived: Callable[[str, int, int, int, int, bytes], None] = _nobody
        # (topic, queue id) -> whether `arrived` has anything to do; asked once a batch.
        self.awaited: Callable[[str, int], object] = _never
        # (topic, properties) -> filter bit map of the topic's groups, for its consumequeue_ext.
        self.bit_map_of: Callable[[str, bytes], bytes] = _no_bit_map

    def to(self, *waiters: "EntryWaiter") -> None:
        """Set the listeners, replacing any others."""
        self._waiters = waiters
        if self._readable is not _nothing:
            self.arrived, self.awaited = self._hold, _always
        elif len(waiters) == 1:
            self.arrived, self.awaited = waiters[0].arrived, waiters[0].awaited
        else:
            self.arrived, self.awaited = self._tell, self._asked

    def hold(self, log_end: Callable[[], int], readable: Callable[[], int]) -> None:
        """From now on pass entries on once they may be read: see `release`.

        log_end: where the log ends; readable: up to where it may be read.
        """
        self._log_end, self._readable = log_end, readable
        self.to(*self._waiters)

    def release(self) -> None:
        """Pass on the entries that may be read by now."""
        held, position = self._held, self._readable()
        while held and held[0][0] <= position:
            self._tell(*held.popleft()[1])

    def _hold(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        entry = topic, queue_id, max_offset, tags_code, store_ms, properties
        self._held.append((self._log_end(), entry))
        self.release()

    def mapped_by(self, bit_map_of: Callable[[str, bytes], bytes] | None) -> None:
        """Set the function that computes bit maps; None: compute no bit maps."""
        self.bit_map_of = bit_map_of or _no_bit_map

    def _tell(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        for waiter in self._waiters:
            waiter.arrived(topic, queue_id, max_offset, tags_code, store_ms, properties)

    def _asked(self, topic: str, queue_id: int) -> bool:
        return any(waiter.awaited(topic, queue_id) for waiter in self._waiters)


def _nobody(*_: object) -> None:
    """Do nothing: there is no listener."""


def _nothing() -> int:
    return 0


def _always(topic: str, queue_id: int) -> bool:
    return True


def _no_bit_map(topic: str, properties: bytes) -> bytes:
    return b""


def _never(topic: str, queue_id: int) -> bool:
    return False
