"""PopService: the parts of pop consumption, and their background work."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages, Tables
from pocketmq.broker.pop.check_point import CheckPointName
from pocketmq.broker.pop.order_log import REVIVE_QUEUE, OrderLog
from pocketmq.broker.pop.pop_polling import PopPolling
from pocketmq.broker.pop.pop_state import GroupQueue
from pocketmq.broker.pop.revive import PopRevive
from pocketmq.broker.pop.revive_log import ReviveLog
from pocketmq.model.pop_receipt import Receipt, Receipted
from pocketmq.remoting.transport.peer import Peer
from pocketmq.store import StoreError

log = logging.getLogger(__name__)

# How exactly messages become visible again and waiting pops end.
STEP_MS = 100
# When messages of a lost holder are redelivered: the proxy's invisibleTimeMillisWhenClear.
_GIVEN_BACK_MS = 1_000


class PopService:
    """Attributes: log (what is in flight), order (blocked queues), order_log (what changes them), polling and
    notifications (held requests), revive (redelivery).
    """

    def __init__(
        self,
        node: Node,
        tables: Tables,
        messages: Messages,
    ) -> None:
        self._events = node.events
        self._offsets = tables.offsets
        self._monotonic_ms = node.clock.monotonic_ms
        self._now_ms = node.clock.now_ms
        self._side_tasks = messages.store.side_tasks
        self.order = tables.order_info
        self.log = ReviveLog(node, tables, messages.store)
        self.order_log = OrderLog(tables, self.log, node.config.broker_name)
        self.revive = PopRevive(node, tables, messages, self.log)
        self.polling, self.notifications = PopPolling(node), PopPolling(node)
        self._busy = asyncio.Event()

    def load(self) -> None:
        """Restore the state from before the restart. Raises: StoreError."""
        self._load(self.log.load)

    def load_anew(self) -> None:
        """Reload a log that was a master's and is ours now. Raises: StoreError."""
        self._load(self.log.load_anew)

    def _load(self, load: Callable[[], None]) -> None:
        # As of the last save: loading the log moves it.
        taken = self.log.taken(REVIVE_QUEUE)
        load()
        self.order_log.load(taken)
        self.wake()

    def wake(self) -> None:
        """Start the rounds: there is something to look after."""
        self._busy.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._side_tasks.repeat("pop", self._round)

    async def _round(self) -> None:
        """Process what is due, or sleep until there is something to look after."""
        if not self._is_busy:
            self._busy.clear()
            await self._busy.wait()
        # Others are served between two steps.
        await asyncio.sleep(0 if self.step() else STEP_MS / 1000)

    @property
    def _is_busy(self) -> bool:
        log = self.log
        return bool(
            len(log.state) or log.unwritten or self.polling.count or self.notifications.count
        )

    def step(self) -> bool:
        """Process what is due now. Returns: whether there is more."""
        more = self.revive.step()
        self.order.tick()
        self.polling.check()
        self.notifications.check()
        return more

    def tick(self) -> None:
        """Drop what is finished, and read records written by others; called once a second."""
        self.log.follow()
        self.settle()
        if self._is_busy:
            self.wake()

    def settle(self) -> None:
        """Tidy the log before the tables are saved."""
        try:
            self.log.settle()
        except StoreError as error:
            log.warning("pop: cannot rewrite old check points yet reason=%s", error)

    def release(self) -> None:
        """Answer every held request: the broker stops."""
        self.polling.release()
        self.notifications.release()

    def cancel(self, queue: GroupQueue, peer: Peer, again: Callable[[], None]) -> None:
        """Drop the held pop with the callback `again`; a message that had woken it wakes another."""
        if not self.polling.cancel(peer, again):
            self.polling.wake(*queue)

    def hold(self, queue: GroupQueue, receipt: Receipt, peer: Peer) -> None:
        """Let a peer keep what it popped while it is connected (auto-renew of 5.x)."""
        if receipt.is_order:
            self.order.hold(queue, receipt.pop_ms, peer)
            return
        name = CheckPointName(
            queue.topic,
            queue.group,
            queue.queue_id,
            receipt.start_offset,
            receipt.pop_ms,
            receipt.broker_name,
        )
        point = self.log.state.get(name)
        if point is not None:
            point.holder = peer

    def connection_closed(self, connection: Peer) -> None:
        """Handle a lost client: what it popped becomes visible in its time, what it held at once."""
        self.order.release(connection)
        for point in self.log.state.held_by(connection):
            point.holder = None
            self.log.state.postpone(point, self._monotonic_ms() + _GIVEN_BACK_MS)
            self.wake()
        self.polling.connection_closed(connection)
        self.notifications.connection_closed(connection)

    def offset_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Apply a group's offset that was set from outside."""
        queue = GroupQueue(group, topic, queue_id)
        if self.log.state.is_popped(queue):
            # Members that pop keep no offsets to reset, so the broker sets the group's offset itself.
            self._offsets.place(*queue, offset)
        self.log.reset(queue, offset)
        self.order_log.clear(queue, offset)
        self._events.poppable(topic, group)

    def forget(self, group: str, topic: str) -> None:
        """Drop the group's offsets of a topic."""
        self.log.forget(group, topic)
        self.order_log.forget(group, topic)

    def receipts(self, group: str) -> Iterator[tuple[str, int, int, Receipted]]:
        """Yield topic, queue id and offset of each popped message that has not been left behind yet."""
        for point in self.log.state.of_group(group):
            for offset in point.unacked:
                yield point.name.topic, point.name.queue_id, offset, Receipted.OUT
        now_ms = self._now_ms()
        for queue, info in self.order.of_group(group):
            for place, offset in enumerate(info.offsets):
                if info.acked >> place & 1:
                    found = Receipted.ACKED
                elif now_ms < info.visible_ms(offset) or info.is_held(now_ms):
                    found = Receipted.OUT
                else:
                    found = Receipted.FREE
                yield queue.topic, queue.queue_id, offset, found

    def group_deleted(self, group: str) -> None:
        """Drop what a deleted group has in flight: redelivering it would make the group again.

        Where its offsets are kept, they go back to what it had not acknowledged.
        """
        lowest: dict[GroupQueue, int] = {}
        for point in self.log.state.of_group(group):
            queue = GroupQueue(group, point.name.topic, point.name.queue_id)
            first = point.unacked[0]
            lowest[queue] = min(first, lowest.get(queue, first))
        for topic in {queue.topic for queue in lowest} | self.order.topics_of(group):
            self.forget(group, topic)
        for queue, offset in lowest.items():
            if self._offsets.query(*queue) > offset:
                self._offsets.place(*queue, offset)

    def poppable(self, topic: str, group: str) -> None:
        """Run a held pop of the group again: there are messages for it."""
        if not self.polling.wake(group, topic):
            self.notifications.wake(group, topic)
