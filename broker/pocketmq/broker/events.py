"""Events: what one part of a broker tells the others, as one typed list.

A part is given the events when it is made, and calls those that are its own: `events.offsets_removed(group,
topic)`. Who hears what is said in one place (assembly.connect); a listener is called at once, in the order of
that place. No part holds a function of another.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol

if TYPE_CHECKING:
    from pocketmq.broker.groups.consumer_manager import ConsumerGroup
    from pocketmq.remoting.peer import Peer
    from pocketmq.remoting.subscription import SubscriptionData
    from pocketmq.remoting.tables import TopicConfig

P = ParamSpec("P")


class Event(Generic[P]):
    """One thing that happens: calling it calls every listener."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)

    def to(self, *listeners: Callable[P, object]) -> None:
        """These hear of it from now on, after those that do already."""
        self._listeners += listeners


class Events:
    """The list. A comment says when it happens and what its arguments are."""

    def __init__(self) -> None:
        # Topics were made or changed (these), or deleted (none); the table is on the disk.
        self.topics_changed: Event[[list[TopicConfig]]] = Event()
        # An administrator has changed settings: their names.
        self.settings_changed: Event[[set[str]]] = Event()
        # A member came, went, or asks for something else.
        self.members_changed: Event[[ConsumerGroup]] = Event()
        # A group's members must share their queues anew: group, connections to tell.
        self.must_rebalance: Event[[str, list[Peer]]] = Event()
        # A heartbeat was taken: group, the member's subscriptions.
        self.heartbeat_taken: Event[[str, list[SubscriptionData]]] = Event()
        # A group's last member is gone.
        self.group_offline: Event[[str]] = Event()
        # A group's offsets of a topic are gone: group, topic.
        self.offsets_removed: Event[[str, str]] = Event()
        # A group goes on elsewhere than where its members are: group, topic, queue id, offset.
        self.offset_copied: Event[[str, str, int, int]] = Event()
        # An administrator sets a group's offset, which is the old one still: the same.
        self.offset_reset: Event[[str, str, int, int]] = Event()
        # What held pulls of a topic may be given has changed.
        self.shares_changed: Event[[str]] = Event()
        # There is something to be popped (again): topic, group.
        self.poppable: Event[[str, str]] = Event()
        # A pop waits for messages.
        self.pop_held: Event[[]] = Event()
        # A client is gone.
        self.connection_closed: Event[[Peer]] = Event()
        self.arrivals = Arrivals()


class Waiter(Protocol):
    """Who waits for new entries."""

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """A queue has a new entry that ends at max_offset."""
        ...

    def awaited(self, topic: str, queue_id: int) -> object:
        """Whether `arrived` has anything to do for that queue."""
        ...


class Arrivals:
    """New entries of queues, told to those that wait for them: the store's listener.

    On the hottest path of all, so it is no Event: before the first pop waits, pops cost a send nothing.
    """

    __slots__ = ("_waiters", "arrived", "awaited", "bit_map_of")

    def __init__(self) -> None:
        self._waiters: tuple[Waiter, ...] = ()
        # (topic, queue id, offset behind the entry, tags code, store ms, properties)
        self.arrived: Callable[[str, int, int, int, int, bytes], None] = _nobody
        # (topic, queue id) -> whether `arrived` has anything to do; asked once a batch.
        self.awaited: Callable[[str, int], object] = _never
        # (topic, properties) -> filter bit map of the topic's groups, for its consumequeue_ext.
        self.bit_map_of: Callable[[str, bytes], bytes] = _no_bit_map

    def to(self, *waiters: "Waiter") -> None:
        """These hear of them from now on, instead of any others."""
        self._waiters = waiters
        if len(waiters) == 1:
            self.arrived, self.awaited = waiters[0].arrived, waiters[0].awaited
        else:
            self.arrived, self.awaited = self._tell, self._asked

    def mapped_by(self, bit_map_of: Callable[[str, bytes], bytes]) -> None:
        """This makes the bit maps, from now on."""
        self.bit_map_of = bit_map_of

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
    """Nobody waits."""


def _no_bit_map(topic: str, properties: bytes) -> bytes:
    return b""


def _never(topic: str, queue_id: int) -> bool:
    return False
