"""PopPolling: holds pops that found nothing until a message arrives or their time is over. Source:
PopLongPollingService, RocketMQ 5.3.3.

1. A message wakes, per group, one pop that waits for its queue and one that waits for all queues of its
   topic, if its filter passes. The pop is run once more, and held again if another was quicker.
2. A pop whose time is over is run one last time and always answered.
3. A pop whose connection closed is dropped.
Owner: the broker; one for pops, one for notifications. `arrived` costs a look-up without held requests.
"""

from collections.abc import Callable

from pocketmq.broker.node import Node
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.waiting.held_request import Arrival, HeldRequest, Woken


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
        self._held: dict[str, dict[GroupQueue, dict[HeldRequest, None]]] = {}
        self.closing = False

    def has_room(self, queue: GroupQueue) -> bool:
        """Return True if one more pop may be held."""
        waiting = self._held.get(queue.topic, {}).get(queue, ())
        return (
            self.weight < self._config.max_pop_polling_size
            and len(waiting) <= self._config.pop_polling_size
        )

    def hold(self, queue: GroupQueue, pop: HeldRequest) -> None:
        """Hold a pop."""
        self.enter(pop, queue)
        self._held.setdefault(queue.topic, {}).setdefault(queue, {})[pop] = None
        self._events.pop_held()

    def polling(self, queue: GroupQueue) -> int:
        """Return the number of pops held for exactly this queue."""
        return len(self._held.get(queue.topic, {}).get(queue, ()))

    def awaited(self, topic: str, queue_id: int) -> bool:
        """Return True if any pop waits for messages of the topic, in whatever queue."""
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
        """Handle a new entry of a queue (invariant 1)."""
        held = self._held.get(topic)
        if held is None:
            return
        arrival = Arrival(tags_code, properties)
        for queue in [queue for queue in held if queue.queue_id in (queue_id, -1)]:
            self._wake_first(queue, arrival.concerns)

    def wake(self, group: str, topic: str, queue_id: int | None = None) -> bool:
        """Wake a pop of a group: for one queue (-1: pops of all queues), or for None, of any."""
        held = self._held.get(topic, {})
        queues = [
            queue
            for queue in held
            if queue.group == group and (queue_id is None or queue.queue_id == queue_id)
        ]
        woken = [self._wake_first(queue, lambda pop: True) for queue in queues]
        return any(woken)

    def wake_held(self, pop: HeldRequest) -> None:
        """Run this held pop again: it has more to look at."""
        self._wake(pop)

    def _wake_first(self, queue: GroupQueue, wanted: Callable[[HeldRequest], bool]) -> bool:
        for pop in self._held[queue.topic][queue]:
            if not pop.connection.closed and wanted(pop):
                self._wake(pop)
                return True
        return False

    def _wake(self, pop: HeldRequest) -> None:
        """Run a pop in the next turn of the loop."""
        self.leave(pop)
        self._forget(pop)
        self.run_soon(pop)

    def _forget(self, held: HeldRequest) -> None:
        queue: GroupQueue = held.queue
        topic = self._held[queue.topic]
        del topic[queue][held]
        if not topic[queue]:
            del topic[queue]
            if not topic:
                del self._held[queue.topic]

    def check(self) -> None:
        """Wake pops whose time is over; drop those of closed connections."""
        now = self._clock.monotonic_ms()
        self._wake_all(lambda pop: now >= pop.deadline_ms or pop.connection.closed)

    def release(self) -> None:
        """Answer every held pop and hold no more: the broker stops."""
        self.closing = True
        self._wake_all(lambda pop: True)
        self.run_all()

    def _wake_all(self, which: Callable[[HeldRequest], bool]) -> None:
        queues = [held for topic in self._held.values() for held in topic.values()]
        for pop in [pop for held in queues for pop in held if which(pop)]:
            self._wake(pop)
