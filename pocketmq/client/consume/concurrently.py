"""ConsumeMessageConcurrently: messages of a queue in any order, several at a time (S34, S59 to S63).

1. Consumed messages leave the ProcessQueue, and the smallest offset left is committed (E4).
2. Failed messages are sent back to the broker, which redelivers them through the group's retry topic; the
   queue's offset advances all the same (S63). If the broker refuses, the message stays in the ProcessQueue
   and is consumed again here after RETRY_DELAY_MS (S61).
3. Broadcasting has no retry: a failed message is logged and lost (S60).
4. Nothing is committed for a dropped queue (S31).
5. What succeeds of one pull within one turn of the event loop is removed, committed and counted at once.
Source: ConsumeMessageConcurrentlyService, RocketMQ 4.9.8.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from pocketmq.client.consume.listener import (
    ConsumeContext,
    ConsumeResult,
    ListenerCall,
    ListenerRun,
    Outcome,
)
from pocketmq.client.consume.service import ConsumeParts, ConsumeService
from pocketmq.client.network.heartbeat import MessageModel
from pocketmq.client.pull.process_queue import ProcessQueue
from pocketmq.model.message import MessageExt, MessageQueue
from pocketmq.remoting.errors import PocketMQError

log = logging.getLogger(__name__)

RETRY_DELAY_MS = 5_000
EXPIRED_DELAY_LEVEL = 3
_EXPIRED_A_TURN_MAX = 16


SendBack = Callable[[MessageExt, int, str], Awaitable[None]]
"""send_back(message, delay_level, broker_name). Raises: PocketMQError when it is stored nowhere."""


def acked_count(result: ConsumeResult | None, ack_index: int, count: int) -> int:
    """How many of `count` messages, from the first on, are done (S59).

    >>> acked_count(ConsumeResult.SUCCESS, 2**31 - 1, 3), acked_count(ConsumeResult.SUCCESS, 0, 3)
    (3, 1)
    >>> acked_count(ConsumeResult.RECONSUME_LATER, 2, 3), acked_count(None, 2, 3)
    (0, 0)
    """
    if result is not ConsumeResult.SUCCESS:
        return 0
    return max(0, min(ack_index, count - 1) + 1)


class ConsumeMessageConcurrently(ConsumeService):
    """Consumes several messages of a queue at the same time."""

    def __init__(
        self,
        parts: ConsumeParts,
        send_back: SendBack,
        queues: Callable[[], Sequence[tuple[MessageQueue, ProcessQueue]]],
    ) -> None:
        super().__init__(parts)
        self._send_back = send_back
        self._queues = queues
        self._sending_back = 0
        self._cost_s = 0.0
        self._all_sent_back = asyncio.Event()
        self._all_sent_back.set()

    def start(self) -> None:
        self._pool.start(self._settle)
        self._runner.every(
            self._options.consume_timeout_ms,
            self.clean_expired,
            first_ms=self._options.consume_timeout_ms,
            name="clean expired messages",
        )

    def put(
        self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Cache pulled messages and have them consumed."""
        process_queue.put(messages)
        self.submit(messages, process_queue, queue)

    def submit(
        self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Have cached messages consumed, in calls of at most batch_size_max."""
        size = self._options.consume_batch_size
        self._pool.submit(ListenerRun(messages, queue, size, self._done, process_queue))

    def _done(self, call: ListenerCall, outcome: Outcome | None) -> None:
        process_queue = call.process_queue
        if outcome is None or process_queue is None:
            return  # given up before its turn: nothing happened
        queue = call.context.queue
        if outcome.error is not None:
            they_will = "be redelivered"
            if self._options.message_model is MessageModel.BROADCASTING:
                they_will = "be dropped"
            elif call.context.delay_level < 0:
                they_will = "become dead letters"
            self._failures.raised(outcome.error, queue, call.messages, they_will=they_will)
        if process_queue.dropped:
            log.warning(
                "the queue was reassigned while its messages were being consumed, so no offset is "
                "committed queue=%s"
                " messages=%s",
                queue,
                len(call.messages),
            )
            return
        count = len(call.messages)
        acked = acked_count(outcome.result, call.context.ack_index, count)
        self._stats.consumed(queue.topic, acked, count - acked, outcome.cost_ms)
        if acked == count:
            self._finish(call.messages, process_queue, queue)
        elif self._options.message_model is MessageModel.BROADCASTING:
            for message in call.messages[acked:]:
                log.warning(
                    "BROADCASTING, the message consume failed, drop it group=%s message=%s %s",
                    self._options.inner_group,
                    message.msg_id,
                    queue,
                )
            self._finish(call.messages, process_queue, queue)
        else:
            self._finish(call.messages[:acked], process_queue, queue)
            self._sending_back += 1
            self._all_sent_back.clear()
            self._runner.spawn(
                self._give_back(call.messages[acked:], process_queue, call.context),
                name="send back",
            )

    def _settle(self, runs: list[ListenerRun]) -> None:
        """Apply invariant 5."""
        for run in runs:
            process_queue, queue, messages = run.process_queue, run.queue, run.succeeded
            assert process_queue is not None
            self._cost_s += run.cost_s
            # What is less than a millisecond counts with the next.
            cost_ms = int(self._cost_s * 1000)
            self._cost_s -= cost_ms / 1000
            self._stats.consumed(queue.topic, len(messages), 0, cost_ms, calls=len(run.good))
            self._finish(messages, process_queue, queue)

    def last_offset(self, process_queue: ProcessQueue) -> None:
        """Commit what succeeded before this queue, whose offset is about to be stored, was dropped."""
        now_ms = self._clock.monotonic_ms()
        for run in self._pool.succeeded:
            if run.process_queue is process_queue:
                offset = process_queue.remove(run.succeeded, now_ms)
                if offset >= 0:
                    self._offsets.update(run.queue, offset, increase_only=True)

    def _finish(
        self, messages: Sequence[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        if not messages:
            return
        offset = process_queue.remove(messages, self._clock.monotonic_ms())
        if offset >= 0 and not process_queue.dropped:
            self._offsets.update(queue, offset, increase_only=True)
            if process_queue.held_pull is not None:
                self._room(process_queue)

    async def _give_back(
        self, messages: list[MessageExt], process_queue: ProcessQueue, context: ConsumeContext
    ) -> None:
        """Apply invariant 2."""
        try:
            stay: list[MessageExt] = []
            for message in messages:
                try:
                    await self._send_back(message, context.delay_level, context.queue.broker_name)
                except PocketMQError as error:
                    log.warning(
                        "could not send the message back, it will be consumed again here in %s ms "
                        "message=%s reason=%r",
                        RETRY_DELAY_MS,
                        message.msg_id,
                        str(error),
                    )
                    message.reconsume_times += 1
                    stay.append(message)
                else:
                    self._finish([message], process_queue, context.queue)
            if stay:
                self._runner.call_later(
                    RETRY_DELAY_MS, lambda: self._again(stay, process_queue, context.queue)
                )
        finally:
            self._sending_back -= 1
            if not self._sending_back:
                self._all_sent_back.set()

    def _again(
        self, messages: list[MessageExt], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        if not process_queue.dropped:
            self.submit(messages, process_queue, queue)

    async def clean_expired(self) -> None:
        """Send back messages that a listener has processed for longer than consume_timeout_ms."""
        for queue, process_queue in self._queues():
            for _ in range(_EXPIRED_A_TURN_MAX):
                message = process_queue.oldest_expired(
                    self._clock.now_ms(), self._options.consume_timeout_ms
                )
                if message is None or process_queue.dropped:
                    break
                try:
                    await self._send_back(message, EXPIRED_DELAY_LEVEL, queue.broker_name)
                except PocketMQError as error:
                    # Other queues may be at a broker that takes theirs.
                    log.warning(
                        "cannot send back a message whose consumption takes too long message=%s "
                        "queue=%s reason=%r",
                        message.msg_id,
                        queue,
                        str(error),
                    )
                    break
                log.warning(
                    "sent back a message whose consumption took too long message=%s queue=%s",
                    message.msg_id,
                    queue,
                )
                # It may have ended while it was sent back.
                if process_queue.first_offset == message.queue_offset:
                    self._finish([message], process_queue, queue)

    async def stop(self, drain_ms: int) -> bool:
        """Let running listeners end and store their results. Returns: whether all did in time."""
        drained = await self._pool.drain(drain_ms)
        self._pool.settle()
        try:
            async with asyncio.timeout(drain_ms / 1000):
                await self._all_sent_back.wait()
        except TimeoutError:
            drained = False
        return drained
