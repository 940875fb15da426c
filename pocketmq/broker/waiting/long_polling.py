"""LongPolling: holds pulls that found nothing until a message arrives or their time is over. Source:
PullRequestHoldService, RocketMQ 4.9.7.

1. A held pull is woken by a message that passes its filter, or when its time is over; it is then run once
   more without holding, and always answered (wire.md 3.4.8).
2. Messages that arrive in one turn of the event loop wake a pull once: it is answered with all of them.
3. A pull whose connection ended is forgotten.
Owner: the broker. `arrived` is called by the store for every entry and costs one look-up when no pull is
held.
"""

import asyncio
import logging
from collections.abc import Callable

from pocketmq.broker.waiting.held_request import Arrival, HeldRequest, Woken
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.transport.peer import Peer
from pocketmq.remoting.transport.turns import CallSoon
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

# RocketMQ looks at all held pulls every 5 s and wakes those whose queue has grown, whatever their
# filter: a pull that only skipped messages is then answered with the offset behind them.
CHECK_INTERVAL_MS = 5_000
# Time-outs that lie closer together than this are served by one look.
_LOOK_INTERVAL_MIN_MS = 100


class HeldPull(HeldRequest):
    """One held pull, and the offset that it reads at."""

    __slots__ = ("offset",)

    def __init__(
        self,
        again: Callable[[], None],
        connection: Peer,
        offset: int,
        matches: EntryFilter | None,
        deadline_ms: int,
        properties: Callable[[bytes], bool] | None = None,
    ) -> None:
        super().__init__(again, connection, matches, deadline_ms, properties)
        self.offset = offset


class LongPolling(Woken[HeldPull]):
    """Owner of the held pulls."""

    kind = "pull"

    def __init__(
        self,
        clock: Clock,
        max_offset: Callable[[str, int], int],
        call_soon: CallSoon | None = None,
        *,
        sizes_max: Callable[[], tuple[int, int]] = lambda: (4_096, 100_000),
    ) -> None:
        """max_offset(topic, queue id): the queue's end; call_soon: see Woken. sizes_max: how many pulls may
        wait for one queue, and in all.
        """
        super().__init__(clock, call_soon)
        self._max_offset = max_offset
        self._sizes_max = sizes_max
        self._held: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._next_look_ms = 0
        self._sooner = asyncio.Event()
        # The broker stops: nothing is held any more.
        self.closing = False

    def has_room(self, topic: str, queue_id: int) -> bool:
        """Return True if one more pull may be held."""
        of_queue, in_all = self._sizes_max()
        return self.weight < in_all and self.polling(topic, queue_id) < of_queue

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> None:
        """Hold a pull (invariant 1)."""
        queue = topic, queue_id
        self.enter(pull, queue)
        held = self._held.get(queue)
        if held is None:
            if not self._held:
                self._next_look_ms = self._clock.monotonic_ms() + CHECK_INTERVAL_MS
                self._sooner.set()
            self._held[queue] = {pull: None}
        else:
            held[pull] = None
        if pull.deadline_ms < self._next_look_ms:
            self._next_look_ms = pull.deadline_ms
            self._sooner.set()

    def release(self) -> None:
        """Answer every held pull and hold no more: the broker stops.

        Ours: a client whose held pull ends with its connection waits for its own time-out, 30 s, before
        it pulls again; one that gets a response continues as soon as the broker is back.
        """
        self.closing = True
        for pulls in list(self._held.values()):
            self._wake(list(pulls))
        self.run_all()

    def polling(self, topic: str, queue_id: int) -> int:
        """Return the number of pulls held for one queue."""
        return len(self._held.get((topic, queue_id), ()))

    def awaited(self, topic: str, queue_id: int) -> bool:
        """Return True if `arrived` has anything to do."""
        return (topic, queue_id) in self._held

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """Wake the pulls that a new entry of the queue concerns, in the next turn of the loop.

        Args: max_offset is behind the new entry; tags_code as the entry holds it.
        """
        held = self._held.get((topic, queue_id))
        if held is None:
            return
        concerns = Arrival(tags_code, properties).concerns
        self._wake([pull for pull in held if max_offset > pull.offset and concerns(pull)])

    def wake_topic(self, topic: str) -> None:
        """Run every held pull of a topic again: its filter may have changed."""
        for queue in [queue for queue in self._held if queue[0] == topic]:
            self._wake(list(self._held[queue]))

    def _wake(self, pulls: list[HeldPull]) -> None:
        for pull in pulls:
            self.leave(pull)
            self._forget(pull)
            self.run_soon(pull)

    def _forget(self, held: HeldPull) -> None:
        pulls = self._held[held.queue]
        del pulls[held]
        if not pulls:
            del self._held[held.queue]

    def check(self) -> None:
        """Wake pulls whose time is over or whose queue has grown; drop those of closed connections."""
        now = self._clock.monotonic_ms()
        next_look = now + CHECK_INTERVAL_MS
        for queue, pulls in list(self._held.items()):
            end = self._max_offset(*queue)
            self._wake(
                [
                    pull
                    for pull in pulls
                    if now >= pull.deadline_ms or end > pull.offset or pull.connection.closed
                ]
            )
            next_look = min([next_look, *(pull.deadline_ms for pull in pulls)])
        self._next_look_ms = max(next_look, now + _LOOK_INTERVAL_MIN_MS)

    async def watch(self) -> None:
        """Run until cancelled: `check` whenever a pull runs out, and every 5 s while any waits."""
        while True:
            self._sooner.clear()
            if not self._held:
                await self._sooner.wait()
                continue
            wait_ms = self._next_look_ms - self._clock.monotonic_ms()
            if wait_ms <= 0:
                self.check()
                continue
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._sooner.wait()
            except TimeoutError:
                pass
