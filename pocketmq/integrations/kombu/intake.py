"""Intake: the messages of a channel's queues on their way from the broker to the thread that consumes.

It lives in the link's thread. It asks the broker whether something is there, which takes nothing, and
takes only as many messages as the channel's prefetch leaves room for: others stay for other workers. What
it took is in `ready`, and `wake` is called. The channel settles each: done, or put back.

1. What is taken and not settled stays invisible to others (option `renews` of the consumer).
2. The queue of a process is read by pulls from the place where it was declared (transient.py); it has no
   acknowledgements and no prefetch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pocketmq.client import MessageExt, SimpleConsumer
from pocketmq.client.errors import OutcomeUnknown, TransientError
from pocketmq.integrations.kombu.link import Link, QueueKind
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

# Short enough for a message whose notification went to a worker that had no room any more.
_WAIT_MS = 5_000
_PAUSE_S = 1.0
_COUNT_MAX = 32
# What is taken ahead without a prefetch.
_AHEAD = 64
_ACK_TIMES = 10


@dataclass(slots=True, frozen=True, eq=False)
class Received:
    """A message. consumer: acknowledges it, None if transient. is_last: of those taken together."""

    queue: str
    message: MessageExt
    consumer: SimpleConsumer | None
    is_last: bool


class Intake:
    """Owner: a channel. `ready` is filled here and emptied by the channel's thread."""

    def __init__(self, link: Link, wake: Callable[[], None]) -> None:
        self._link = link
        self._wake = wake
        self.ready: deque[Received] = deque()
        self._prefetch = 0
        self._unsettled = 0
        self._queues: dict[str, QueueKind] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._taking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._watched: set[str] = set()
        self._failing: set[str] = set()
        self._acks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ what is wanted

    def set_prefetch(self, count: int) -> None:
        """Take at most so many messages that are not settled; 0: no limit."""
        self._prefetch = count
        self._changed.set()

    async def consume(self, queue: str) -> None:
        """Begin to take messages of a queue."""
        kind = await self._link.kind(queue)
        if kind.is_transient:
            task = self._link.runner.spawn(self._read(queue, kind), name=f"read {queue}")
            if task is not None:
                self._readers[queue] = task
            return
        self._queues[queue] = kind
        self._changed.set()
        if self._taking is None:
            self._taking = self._link.runner.spawn(self._take(), name="take")

    async def cancel(self, queue: str) -> None:
        """Take no more of a queue; what was taken and not delivered goes back."""
        self._queues.pop(queue, None)
        self._changed.set()
        reader = self._readers.pop(queue, None)
        if reader is not None:
            reader.cancel()
        left = [each for each in list(self.ready) if each.queue == queue]
        for each in left:
            try:
                self.ready.remove(each)
            except ValueError:
                # The channel's thread took it meanwhile.
                continue
            await self.put_back(each)

    async def close(self) -> None:
        """Take no more, put back what was not delivered, and finish acknowledging."""
        for queue in [*self._queues, *self._readers]:
            await self.cancel(queue)
        if self._taking is not None:
            self._taking.cancel()
        if self._acks:
            await asyncio.wait(self._acks)

    # ------------------------------------------------------------ taking

    def _room(self) -> int:
        limit = self._prefetch - self._unsettled if self._prefetch else _AHEAD - len(self.ready)
        return min(limit, _COUNT_MAX)

    async def _take(self) -> None:
        turn = 0
        while True:
            queues = list(self._queues)
            if not queues or self._room() <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            turn = (turn + 1) % len(queues)
            found = False
            for queue in [*queues[turn:], *queues[:turn]]:
                if queue in self._queues and self._room() > 0:
                    found |= await self._take_of(queue)
            if not found:
                await self._wait_for_any()

    async def _take_of(self, queue: str) -> bool:
        try:
            consumer = await self._link.consumer(queue, self._queues[queue])
            found = await consumer.receive(self._room(), wait_ms=0)
        except PocketMQError as error:
            await self._pause(queue, error)
            return False
        if queue in self._failing:
            self._failing.discard(queue)
            log.info("taking messages again queue=%s", queue)
        received = [Received(queue, message, consumer, message is found[-1]) for message in found]
        self._unsettled += len(received)
        self.ready.extend(received)
        if received:
            self._wake()
        return bool(found)

    async def _pause(self, queue: str, error: PocketMQError) -> None:
        if queue not in self._failing:
            self._failing.add(queue)
            log.warning("cannot take messages, will retry queue=%s reason=%r", queue, str(error))
        await asyncio.sleep(_PAUSE_S)

    async def _wait_for_any(self) -> None:
        """Return when one of the queues has something, or when what is wanted has changed."""
        self._changed.clear()
        # Those of now: while messages were taken, a queue may have been cancelled or added.
        for queue, kind in self._queues.items():
            # One at a time, and to its end: a broker tells one of those that wait, and would tell a caller
            # that has stopped listening.
            if queue not in self._watched:
                self._watched.add(queue)
                self._link.runner.spawn(self._watch(queue, kind), name="watch")
        await self._changed.wait()

    async def _watch(self, queue: str, kind: QueueKind) -> None:
        try:
            consumer = await self._link.consumer(queue, kind)
            await consumer.available(wait_ms=_WAIT_MS)
        except PocketMQError as error:
            await self._pause(queue, error)
        finally:
            self._watched.discard(queue)
            self._changed.set()

    async def _read(self, queue: str, kind: QueueKind) -> None:
        def take(message: MessageExt) -> None:
            self.ready.append(Received(queue, message, None, True))
            self._wake()

        await self._link.transients.read(queue, kind.topic, take)

    async def take_one(self, queue: str) -> Received | None:
        """Return the next message of a queue now, None if it has none."""
        for each in list(self.ready):
            if each.queue == queue:
                self.ready.remove(each)
                return each
        kind = await self._link.kind(queue)
        if kind.is_transient:
            found = await self._link.transients.take_one(queue, kind.topic)
            return None if found is None else Received(queue, found, None, True)
        consumer = await self._link.consumer(queue, kind)
        for message in await consumer.receive(1, wait_ms=0):
            self._unsettled += 1
            return Received(queue, message, consumer, True)
        return None

    # ------------------------------------------------------------ settling

    def done(self, received: Received) -> None:
        """Acknowledge a message, in any thread; it returns at once."""
        if received.consumer is not None and not self._link.is_inherited:
            self._link.post(partial(self._settle, received))

    def _settle(self, received: Received) -> None:
        self._settled()
        task = self._link.runner.spawn(self._ack(received), name="ack")
        if task is not None:
            self._acks.add(task)
            task.add_done_callback(self._acks.discard)

    def _settled(self) -> None:
        self._unsettled -= 1
        self._changed.set()
        if self.ready:
            # They waited for the prefetch to have room.
            self._wake()

    async def _ack(self, received: Received) -> None:
        assert received.consumer is not None
        for _ in range(_ACK_TIMES):
            try:
                await received.consumer.ack(received.message)
                return
            except (TransientError, OutcomeUnknown) as error:
                await self._pause(received.queue, error)
            except PocketMQError as error:
                log.warning(
                    "a message will come again, the broker refuses its receipt queue=%s reason=%r",
                    received.queue,
                    str(error),
                )
                return

    async def put_back(self, received: Received) -> None:
        """Give a message back to its queue, as new."""
        if received.consumer is None:
            await self._link.put_back(received.message)
            return
        try:
            await self._link.put_back(received.message)
            await self._ack(received)
        finally:
            self._settled()
