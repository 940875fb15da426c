"""PopPolling: pops that found nothing wait here for a message or their time. Source: PopLongPollingService,
RocketMQ 5.3.3.

1. A message wakes one waiting pop of each group for its queue, and one for all queues of its topic: those
   whose filter lets it through. It is run once more and waits again if another was quicker.
2. A pop that has waited to its end is run for the last time and answered whatever comes.
3. A pop whose connection ended is forgotten.
Owner: the broker; one for pops, one for notifications. `arrived` costs a look-up when nobody waits.
"""

from collections import deque
from collections.abc import Callable, Iterable

from pocketmq.broker.held_request import HeldRequest, Woken
from pocketmq.broker.parts import Node
from pocketmq.broker.pop.pop_state import QueueOf
from pocketmq.remoting.peer import Peer


class PopPolling(Woken[HeldRequest]):
    """Owner of the held pops; queue id -1 stands for all queues of the topic."""

    kind = "pop"

    def __init__(
        self,
        node: Node,
    ) -> None:
        super().__init__(node.clock, node.call_soon)
        self._config = node.config
        self._events = node.events
        # topic -> group and queue -> pops in the order of their coming
        self._held: dict[str, dict[QueueOf, deque[HeldRequest]]] = {}
        self.count = 0
        self.closing = False

    def has_room(self, queue: QueueOf) -> bool:
        """Whether one more may wait."""
        waiting = self._held.get(queue.topic, {}).get(queue, ())
        return (
            self.count < self._config.max_pop_polling_size
            and len(waiting) <= self._config.pop_polling_size
        )

    def hold(self, queue: QueueOf, pop: HeldRequest) -> None:
        """Let a pop wait."""
        self._held.setdefault(queue.topic, {}).setdefault(queue, deque()).append(pop)
        self.count += 1
        self._events.pop_held()

    def polling(self, queue: QueueOf) -> int:
        """Pops that wait for exactly this."""
        return len(self._held.get(queue.topic, {}).get(queue, ()))

    def awaited(self, topic: str) -> bool:
        """Whether anybody waits for messages of a topic."""
        return topic in self._held

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """A queue has a new entry (invariant 1)."""
        held = self._held.get(topic)
        if held is None:
            return
        for queue in [queue for queue in held if queue.queue_id in (queue_id, -1)]:
            self._wake_first(queue, lambda pop: pop.wants(tags_code, properties))

    def wake(self, group: str, topic: str, queue_id: int | None = None) -> bool:
        """There is something for a group: of one queue (-1: of all), or nobody knows of which."""
        held = self._held.get(topic, {})
        queues = [
            queue
            for queue in held
            if queue.group == group and (queue_id is None or queue.queue_id == queue_id)
        ]
        woken = [self._wake_first(queue, lambda pop: True) for queue in queues]
        return any(woken)

    def _wake_first(self, queue: QueueOf, wanted: Callable[[HeldRequest], bool]) -> bool:
        held = self._held[queue.topic][queue]
        for pop in held:
            if not pop.connection.closed and wanted(pop):
                held.remove(pop)
                self._left(queue, [pop])
                return True
        return False

    def _left(self, queue: QueueOf, pops: Iterable[HeldRequest]) -> None:
        """Pops have been taken out: run them in the next turn of the loop."""
        topic = self._held[queue.topic]
        if not topic[queue]:
            del topic[queue]
            if not topic:
                del self._held[queue.topic]
        for pop in pops:
            self.count -= 1
            self.run_soon(pop)

    def check(self) -> None:
        """Wake pops whose time is over, forget those of closed connections."""
        now = self._clock.monotonic_ms()
        self._take(lambda pop: now >= pop.deadline_ms or pop.connection.closed)

    def release(self) -> None:
        """The broker stops: every held pop is answered now, and none is held any more."""
        self.closing = True
        self._take(lambda pop: True)
        self.run_all()

    def connection_closed(self, connection: Peer) -> None:
        """Forget the pops of a connection that ended."""
        self._take(lambda pop: pop.connection is connection)

    def _take(self, which: Callable[[HeldRequest], bool]) -> None:
        for topic in list(self._held.values()):
            for queue, held in list(topic.items()):
                taken = [pop for pop in held if which(pop)]
                if taken:
                    topic[queue] = deque(pop for pop in held if not which(pop))
                    self._left(queue, taken)
