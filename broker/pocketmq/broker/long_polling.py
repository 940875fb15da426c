"""LongPolling: pulls that found nothing wait here for a message or their time. Source:
PullRequestHoldService, RocketMQ 4.9.7.

1. A held pull is woken by a message that its filter lets through, or when its time is over; it is then
   run once more without holding, and answered whatever comes (wire.md 3.4.8).
2. Messages that arrive in one turn of the event loop wake a pull once: it is answered with all of them.
3. A pull whose connection ended is forgotten.
Owner: the broker. `arrived` is called by the store for every entry and costs one look-up when nobody
waits.
"""

import asyncio
import logging
from collections.abc import Callable

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.connection import Connection
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

_LOW_WORD = 0xFFFF_FFFF
# RocketMQ looks at all held pulls every 5 s and wakes those whose queue has grown, whatever their
# filter: a pull that only skipped messages is then answered with the offset behind them.
CHECK_INTERVAL_MS = 5_000
# Time-outs that lie closer together than this are served by one look.
_LOOK_INTERVAL_MIN_MS = 100


class HeldPull:
    """One waiting pull: where it reads, what it lets through, until when (monotonic ms)."""

    __slots__ = ("codes", "connection", "deadline_ms", "offset", "properties", "request")

    def __init__(
        self,
        request: RemotingCommand,
        connection: Connection,
        offset: int,
        matches: EntryFilter | None,
        deadline_ms: int,
        properties: Callable[[bytes], bool] | None = None,
    ) -> None:
        """matches: the tags codes that wake it; properties: what the message's properties must pass."""
        self.request = request
        self.connection = connection
        self.offset = offset
        codes = matches.codes if matches is not None else None
        self.codes = None if codes is None else frozenset(code & _LOW_WORD for code in codes)
        self.deadline_ms = deadline_ms
        self.properties = properties


class LongPolling:
    """Owner of the held pulls."""

    def __init__(self, clock: Clock, max_offset: Callable[[str, int], int]) -> None:
        """max_offset(topic, queue id): where the queue ends now."""
        self._clock = clock
        self._max_offset = max_offset
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._ready: list[HeldPull] = []
        self._next_look_ms = 0
        self._sooner = asyncio.Event()
        # The broker stops: nothing is held any more.
        self.closing = False
        # Runs a function in the next turn of the event loop; None: woken pulls wait for run_ready.
        self.call_soon: Callable[[Callable[[], None]], object] | None = None
        # Answers a pull that is done waiting; set by the processor of pulls.
        self.run: Callable[[RemotingCommand, Connection], None] | None = None

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> None:
        """Let a pull wait (invariant 1)."""
        held = self._held.get((topic, queue_id))
        if held is None:
            if not self._held:
                self._next_look_ms = self._clock.monotonic_ms() + CHECK_INTERVAL_MS
                self._sooner.set()
            self._held[topic, queue_id] = [pull]
        else:
            held.append(pull)
        if pull.deadline_ms < self._next_look_ms:
            self._next_look_ms = pull.deadline_ms
            self._sooner.set()

    def release(self) -> None:
        """The broker stops: answer every held pull now, and hold none any more.

        Ours: a client whose held pull ends with its connection waits out its own time-out, 30 s, before
        it pulls again; one that was answered goes on as soon as the broker is back.
        """
        self.closing = True
        for pulls in self._held.values():
            self._ready += pulls
        self._held.clear()
        self.run_ready()

    @property
    def count(self) -> int:
        """Pulls that wait now."""
        return sum(len(pulls) for pulls in self._held.values())

    def polling(self, topic: str, queue_id: int) -> int:
        """Pulls that wait for one queue."""
        return len(self._held.get((topic, queue_id), ()))

    def arrived(
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int,
        store_ms: int,
        properties: bytes,
    ) -> None:
        """A queue has a new entry: wake the pulls that it concerns, in the next turn of the loop.

        Args: max_offset is behind the new entry; tags_code as the entry holds it.
        """
        held = self._held.get((topic, queue_id))
        if held is None:
            return
        kept = []
        for pull in held:
            if (
                max_offset > pull.offset
                and (pull.codes is None or tags_code & _LOW_WORD in pull.codes)
                and (pull.properties is None or pull.properties(properties))
            ):
                self._wake(pull)
            else:
                kept.append(pull)
        self._keep((topic, queue_id), kept)

    def wake_topic(self, topic: str) -> None:
        """Run every pull of a topic again: what it may be given has changed."""
        for queue in [queue for queue in self._held if queue[0] == topic]:
            for pull in self._held.pop(queue):
                self._wake(pull)

    def _keep(self, queue: tuple[str, int], pulls: list[HeldPull]) -> None:
        if pulls:
            self._held[queue] = pulls
        else:
            self._held.pop(queue, None)

    def _wake(self, pull: HeldPull) -> None:
        if not self._ready and self.call_soon is not None:
            self.call_soon(self.run_ready)
        self._ready.append(pull)

    def run_ready(self) -> None:
        """Answer every pull that was woken."""
        ready, self._ready = self._ready, []
        for pull in ready:
            if pull.connection.closed or self.run is None:
                continue
            try:
                self.run(pull.request, pull.connection)
            except Exception:
                log.exception("a held pull failed when it was woken peer=%s", pull.connection.peer)

    def check(self) -> None:
        """Wake pulls whose time is over or whose queue has grown; forget those of closed connections."""
        now = self._clock.monotonic_ms()
        next_look = now + CHECK_INTERVAL_MS
        for queue, pulls in list(self._held.items()):
            end = self._max_offset(*queue)
            kept = []
            for pull in pulls:
                if pull.connection.closed:
                    continue
                if now >= pull.deadline_ms or end > pull.offset:
                    self._wake(pull)
                else:
                    next_look = min(next_look, pull.deadline_ms)
                    kept.append(pull)
            self._keep(queue, kept)
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

    def connection_closed(self, connection: Connection) -> None:
        """Forget the pulls of a connection that ended."""
        for queue, pulls in list(self._held.items()):
            kept = [pull for pull in pulls if pull.connection is not connection]
            if len(kept) != len(pulls):
                self._keep(queue, kept)
