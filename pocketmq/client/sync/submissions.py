"""Submissions: messages on their way from any thread to the event loop, many in one hand-over.

A hand-over wakes the loop and costs more than a send, so one coroutine takes whatever has come meanwhile.
Bounded: a thread waits while too many messages have no outcome yet.
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from pocketmq.client.producer import Producer
from pocketmq.client.send.result import SendResult
from pocketmq.client.sync.loop_thread import LoopThread
from pocketmq.model.message import Message, MessageQueue


class _Submission(NamedTuple):
    message: Message
    queue: MessageQueue | None
    sharding_key: str | None
    outcome: "Future[SendResult]"


class Submissions:
    """Owner: a blocking Producer. `put` may be called in any thread."""

    def __init__(self, producer: Producer, in_flight_max: int) -> None:
        self._producer = producer
        self._room = threading.Semaphore(2 * max(1, in_flight_max))
        self._waiting: deque[_Submission] = deque()
        self._lock = threading.Lock()
        self._carrying = False
        self._flushing: list[asyncio.Future[None]] = []

    def put(
        self,
        thread: LoopThread,
        message: Message,
        queue: MessageQueue | None,
        sharding_key: str | None,
    ) -> "Future[SendResult]":
        """Hand a message over; the future gets what Producer.send returns or raises."""
        # A callback runs in the loop's own thread: waiting there would be waiting for itself.
        has_room = self._room.acquire(blocking=not thread.is_current)
        outcome: Future[SendResult] = Future()
        if has_room:
            outcome.add_done_callback(lambda _: self._room.release())
        with self._lock:
            self._waiting.append(_Submission(message, queue, sharding_key, outcome))
            begin = not self._carrying
            self._carrying = True
        if begin:
            thread.begin(self._carry())
        return outcome

    async def flush(self) -> None:
        """Wait until everything was submitted; the outcomes may still be awaited."""
        while self._carrying:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushing.append(done)
            await done

    def _end(self) -> None:
        self._carrying = False
        flushing, self._flushing = self._flushing, []
        for each in flushing:
            if not each.done():
                each.set_result(None)

    async def _carry(self) -> None:
        """Submit until nothing waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._end()
                    return
                taken = self._waiting.popleft()
            outcome = taken.outcome
            if not outcome.set_running_or_notify_cancel():
                continue
            try:
                sent = await self._producer.submit(
                    taken.message, queue=taken.queue, sharding_key=taken.sharding_key
                )
            except Exception as error:  # noqa: BLE001 - the waiter for the outcome gets it
                outcome.set_exception(error)
            except BaseException as error:
                # The loop ends: no task sends the rest.
                with self._lock:
                    self._end()
                    left, self._waiting = self._waiting, deque()
                outcome.set_exception(error)
                for each in left:
                    each.outcome.cancel()
                raise
            else:
                sent.add_done_callback(partial(_settle, outcome))


def _settle(outcome: "Future[SendResult]", sent: "asyncio.Future[SendResult]") -> None:
    error = sent.exception() if not sent.cancelled() else asyncio.CancelledError()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(sent.result())
