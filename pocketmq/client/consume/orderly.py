"""ConsumeMessageOrderly: the messages of a queue one after the other (S22, wire.md 4.6).

1. In clustering, a queue is consumed only while this client holds its lock at the broker; the lock is
   renewed every LOCK_INTERVAL_MS and not trusted LOCK_LIVE_MS_MAX after its last renewal.
2. One turn per queue at a time, even if the queue was lost and regained meanwhile.
3. A failed message is retried after a while, before any later one; after max_reconsume_times failures it is
   handed to the broker as a dead letter.
4. A turn ends after TURN_MS_MAX, so that many queues share few threads.
Source: ConsumeMessageOrderlyService, RocketMQ 4.9.8.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from pocketmq.client.consume.listener import ConsumeResult, ListenerCall, ListenerRun, Outcome
from pocketmq.client.consume.service import ConsumeParts, ConsumeService
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.pull.process_queue import LOCK_INTERVAL_MS, ProcessQueue
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

TURN_MS_MAX = 60_000
SUSPEND_MS_MIN, SUSPEND_MS_MAX = 10, 30_000


class QueueLocks(Protocol):
    """The locks at the brokers; Rebalance holds them."""

    async def lock(self, queue: MessageQueue) -> bool: ...

    async def lock_all(self) -> None: ...

    async def unlock_all(self) -> None: ...


class ConsumeMessageOrderly(ConsumeService):
    """Consumes the messages of a queue one after the other."""

    def __init__(
        self,
        parts: ConsumeParts,
        send_to_retry: Callable[[MessageExt], Awaitable[None]],
        locks: QueueLocks,
    ) -> None:
        """send_to_retry: hands over a message whose retries are used up. Raises: PocketMQError."""
        super().__init__(parts)
        self._send_to_retry = send_to_retry
        self._locks = locks
        self._turns: dict[MessageQueue, asyncio.Lock] = {}
        self._consuming: dict[ProcessQueue, asyncio.Lock] = {}
        self._stopping = False

    @property
    def _clustering(self) -> bool:
        return self._options.message_model is MessageModel.CLUSTERING

    def start(self) -> None:
        self._pool.start()
        if self._clustering:
            self._runner.every(
                LOCK_INTERVAL_MS, self._locks.lock_all, first_ms=1_000, name="lock queues"
            )

    def put(
        self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Cache pulled messages; start a turn unless one is running or planned."""
        if process_queue.put(messages):
            self._begin_turn(process_queue, queue)

    def _begin_turn(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        self._runner.spawn(self._turn(process_queue, queue), name="orderly turn")

    def _turn_later(self, process_queue: ProcessQueue, queue: MessageQueue, delay_ms: int) -> None:
        bounded = min(max(delay_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)
        self._runner.call_later(bounded, lambda: self._begin_turn(process_queue, queue))

    def _lock_later(self, process_queue: ProcessQueue, queue: MessageQueue, delay_ms: int) -> None:
        async def lock() -> None:
            won = not self._stopping and await self._locks.lock(queue)
            self._turn_later(process_queue, queue, 10 if won else 3_000)

        self._runner.call_later(
            delay_ms, lambda: self._runner.spawn(lock(), name="lock queue") and None
        )

    async def _turn(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        if process_queue.dropped:
            log.warning("the queue was reassigned and is not consumed queue=%s", queue)
            return
        async with self._turns.setdefault(queue, asyncio.Lock()):
            try:
                await self._hold_turn(process_queue, queue)
            except Exception:
                # Such as by what a listener leaves in its context: the queue would stand still.
                log.exception("a turn failed, its messages are consumed again queue=%s", queue)
                process_queue.take_all_back()
                self._turn_later(process_queue, queue, self._options.suspend_ms)

    async def _hold_turn(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        clock = self._clock
        began = clock.monotonic_ms()
        while not process_queue.dropped and not self._stopping:
            now = clock.monotonic_ms()
            if self._clustering and (not process_queue.locked or process_queue.lock_expired(now)):
                log.warning("the queue is not locked, consume later queue=%s", queue)
                self._lock_later(process_queue, queue, 10)
                return
            if now - began > TURN_MS_MAX:
                self._turn_later(process_queue, queue, 10)
                return
            messages = process_queue.take(self._options.consume_batch_size, now)
            if not messages or not await self._consume(messages, process_queue, queue):
                return

    def consume_lock(self, process_queue: ProcessQueue) -> asyncio.Lock:
        """Return the lock held while the listener processes the queue; taking it away waits for that."""
        return self._consuming.setdefault(process_queue, asyncio.Lock())

    async def is_free_within(self, process_queue: ProcessQueue, wait_ms: int) -> bool:
        """Return True if the listener does not process the queue, or ends in time; the lock is not kept."""
        lock = self.consume_lock(process_queue)
        if not lock.locked():
            return True
        try:
            async with asyncio.timeout(wait_ms / 1000):
                async with lock:
                    return True
        except TimeoutError:
            return False

    def forget(self, process_queue: ProcessQueue) -> None:
        """Drop the state of a queue that was taken away for good."""
        self._consuming.pop(process_queue, None)

    async def _consume(
        self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> bool:
        """Call the listener once and handle the outcome. Returns: whether the turn continues."""
        async with self.consume_lock(process_queue):
            if process_queue.dropped:
                return False
            call, outcome = await self._call(messages, queue)
        if outcome is None:
            process_queue.take_back(messages)
            return False
        if outcome.error is not None:
            self._failures.raised(outcome.error, queue, messages)
        ok = outcome.result is ConsumeResult.SUCCESS
        count = len(messages)
        self._stats.consumed(queue.topic, count if ok else 0, 0 if ok else count, outcome.cost_ms)
        if not ok and await self._must_wait(messages):
            process_queue.take_back(messages)
            suspend = call.context.suspend_ms
            self._turn_later(
                process_queue, queue, self._options.suspend_ms if suspend is None else suspend
            )
            return False
        offset = process_queue.commit()
        if offset >= 0 and not process_queue.dropped:
            self._offsets.update(queue, offset, increase_only=False)
            if process_queue.held_pull is not None:
                self._room(process_queue)
        return True

    async def _call(
        self, messages: list[MessageExt], queue: MessageQueue
    ) -> tuple[ListenerCall, Outcome | None]:
        finished: asyncio.Future[tuple[ListenerCall, Outcome | None]] = (
            asyncio.get_running_loop().create_future()
        )

        def done(call: ListenerCall, outcome: Outcome | None) -> None:
            if not finished.done():
                finished.set_result((call, outcome))

        self._pool.submit(ListenerRun(messages, queue, len(messages), done))
        return await finished

    async def _must_wait(self, messages: list[MessageExt]) -> bool:
        """Count each message's failure; return True if one of them must be retried (invariant 3)."""
        again = False
        limit = self._options.max_reconsume_times
        for message in messages:
            if 0 <= limit <= message.reconsume_times:
                try:
                    await self._send_to_retry(message)
                    continue
                except PocketMQError as error:
                    log.warning(
                        "could not hand over a message that has used up its retries, it will be "
                        "consumed again message=%s"
                        " reason=%r",
                        message.msg_id,
                        str(error),
                    )
            again = True
            message.reconsume_times += 1
        return again

    async def stop(self, drain_ms: int) -> bool:
        """Let running listeners end, then unlock the queues. Returns: whether all ended in time."""
        self._stopping = True
        try:
            drained = await self._pool.drain(drain_ms)
            # A call that has ended is followed by its commit in the turn's own task.
            for lock in list(self._consuming.values()):
                if drained:
                    async with lock:
                        pass
        finally:
            if self._clustering:
                await self._locks.unlock_all()
        return drained
