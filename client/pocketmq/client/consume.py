"""The arguments and results of listeners, and the pools that call them (S34, S59, S62).

    def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None: ...

A plain function runs in a thread pool, a coroutine function on the event loop; either way `concurrency` calls
at the same time. None means SUCCESS; an exception means RECONSUME_LATER and is logged.
"""

import asyncio
import inspect
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import Protocol

from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.runner import Runner
from pocketmq.remoting.message import MessageExt, MessageQueue

log = logging.getLogger(__name__)


class ConsumeResult(StrEnum):
    """A listener's result for its messages.

    RECONSUME_LATER: redeliver after a while (orderly consumers treat it like the next one).
    SUSPEND_CURRENT_QUEUE_A_MOMENT: orderly only, the same messages again, before any other of the queue.
    """

    SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may read and set for its call.

    ack_index: the last message of the list that succeeded, with SUCCESS; those behind it are redelivered.
    delay_level: when they are redelivered; 0 lets the broker choose (longer each time), -1 dead-letters.
    suspend_ms: orderly, how long the queue pauses after SUSPEND; None takes the consumer's setting.
    """

    queue: MessageQueue
    ack_index: int = sys.maxsize
    delay_level: int = 0
    suspend_ms: int | None = None


_SUCCESS = ConsumeResult.SUCCESS
Listener = Callable[
    [list[MessageExt], ConsumeContext],
    ConsumeResult | Awaitable[ConsumeResult | None] | None,
]


@dataclass(slots=True)
class Outcome:
    """How a listener call ended; times by the wall clock, ms. result None: it raised `error`."""

    result: ConsumeResult | None
    error: BaseException | None
    cost_ms: int


@dataclass(slots=True, eq=False)
class Call:
    """One call of the listener; `done` is called on the event loop with its outcome.

    process_queue: if it is dropped before the call starts, the call is cancelled. A cancelled call has the
    outcome None.
    """

    messages: list[MessageExt]
    context: ConsumeContext
    done: Callable[["Call", Outcome | None], None]
    process_queue: ProcessQueue | None = None


class Around(Protocol):
    """Hooks right before and after the listener, in its thread or task: start times, traces."""

    def before(self, call: Call) -> object:
        """Return what `after` is given; None: there is nothing to do after the call."""
        ...

    def after(self, call: Call, token: object, outcome: Outcome) -> None: ...


class ListenerPool(Protocol):
    """Calls the listener, at most `concurrency` at a time."""

    def start(self) -> None: ...

    def submit(self, calls: Sequence[Call]) -> None: ...

    async def drain(self, within_ms: int) -> bool:
        """Wait for running calls; pending ones are cancelled. False: not all ended."""
        ...

    async def stop(self) -> None: ...


def _judge(listener_result: object) -> ConsumeResult:
    if listener_result is None:
        return ConsumeResult.SUCCESS
    if isinstance(listener_result, ConsumeResult):
        return listener_result
    raise TypeError(f"a listener must return a ConsumeResult or None, not {listener_result!r}")


class _Counted:
    """Counts pending and running calls."""

    def __init__(self) -> None:
        self._under_way = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def _begin(self, count: int) -> None:
        if not self._under_way:
            self._idle.clear()
        self._under_way += count

    def _end(self) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            self._idle.set()

    def _wanted(self, call: Call) -> bool:
        queue = call.process_queue
        return not self._draining and (queue is None or not queue.dropped)

    async def drain(self, within_ms: int) -> bool:
        """See ListenerPool."""
        self._draining = True
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


class CoroutinePool(_Counted):
    """Awaits a coroutine function on the event loop."""

    # A listener that never waits would keep the loop for a whole backlog.
    _TURN_S = 0.005

    def __init__(
        self, listener: Listener, around: Around, concurrency: int, runner: Runner
    ) -> None:
        super().__init__()
        self._listener = listener
        self._around = around
        self._concurrency = concurrency
        self._runner = runner
        self._calls: deque[Call] = deque()
        self._resting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def start(self) -> None:
        for number in range(self._concurrency):
            self._runner.spawn(self._work(), name=f"listener-{number}")

    def submit(self, calls: Sequence[Call]) -> None:
        self._begin(len(calls))
        self._calls.extend(calls)
        if not self._waking:
            self._wake()

    def _wake(self) -> None:
        """Wake one worker, and another in the loop's next turn if calls are left by then.

        One is enough for a listener that never waits, and waking a worker costs more than such a call.
        """
        self._waking = False
        resting = self._resting
        while self._calls and resting:
            worker = resting.popleft()
            if not worker.done():
                worker.set_result(None)
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake)
                return

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        calls, listener, around = self._calls, self._listener, self._around
        # The clock is read once a call: one begins when the one before has ended, or after a rest.
        now = time.monotonic()
        turn_ends = now + self._TURN_S
        while True:
            if now > turn_ends:
                await asyncio.sleep(0)
                now = time.monotonic()
                turn_ends = now + self._TURN_S
            while not calls:
                rest: asyncio.Future[None] = loop.create_future()
                self._resting.append(rest)
                await rest
                now = time.monotonic()
                turn_ends = now + self._TURN_S
            call = calls.popleft()
            outcome: Outcome | None = None
            try:
                queue = call.process_queue
                if not self._draining and (queue is None or not queue.dropped):
                    began, token = now, None
                    try:
                        token = around.before(call)
                        returned = await listener(call.messages, call.context)  # type: ignore[misc]
                        now = time.monotonic()
                        result = _SUCCESS if returned is None else _judge(returned)
                        outcome = Outcome(result, None, int((now - began) * 1000))
                    except Exception as error:  # noqa: BLE001 - the listener's fault is an outcome
                        now = time.monotonic()
                        outcome = Outcome(None, error, int((now - began) * 1000))
                    if token is not None:
                        _after(around, call, token, outcome)
                call.done(call, outcome)
            except Exception:
                log.exception("could not process a consume result queue=%s", call.context.queue)
            finally:
                self._end()

    async def stop(self) -> None:
        """Do nothing: the runner ends the workers."""


class ThreadPool(_Counted):
    """Calls a plain function in threads, which are started on demand.

    Results of the threads are collected and passed to the event loop in one go, not one by one.
    """

    def __init__(self, listener: Listener, around: Around, concurrency: int, name: str) -> None:
        super().__init__()
        self._listener = listener
        self._around = around
        self._concurrency = concurrency
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._finished: deque[tuple[Call, Outcome | None]] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def submit(self, calls: Sequence[Call]) -> None:
        self._begin(len(calls))
        wanted = min(self._under_way, self._concurrency)
        while len(self._threads) < wanted:
            thread = threading.Thread(
                target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        for call in calls:
            self._calls.put(call)

    def _work(self) -> None:
        take = self._calls.get
        while (call := take()) is not None:
            outcome = self._call(call) if self._wanted(call) else None
            self._finished.append((call, outcome))
            # Set before the loop empties the deque, so a call is never left behind unannounced.
            if not self._handing_over:
                self._handing_over = True
                assert self._loop is not None
                try:
                    self._loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:
                    return  # the loop is closed: nobody is left to tell

    def _call(self, call: Call) -> Outcome:
        began = time.monotonic()
        token: object = None
        try:
            token = self._around.before(call)
            returned = _judge(self._listener(call.messages, call.context))
            outcome = Outcome(returned, None, _since_ms(began))
        except Exception as error:  # noqa: BLE001 - the listener's fault is an outcome
            outcome = Outcome(None, error, _since_ms(began))
        if token is not None:
            _after(self._around, call, token, outcome)
        return outcome

    def _hand_over(self) -> None:
        self._handing_over = False
        finished = self._finished
        while finished:
            call, outcome = finished.popleft()
            try:
                call.done(call, outcome)
            except Exception:
                log.exception("could not process a consume result queue=%s", call.context.queue)
            finally:
                self._end()

    async def stop(self) -> None:
        """End the threads; one that is still in a listener is left to end by itself."""
        for _ in self._threads:
            self._calls.put(None)
        if self._under_way == 0:
            # All wait for a call and get None: this takes microseconds.
            for thread in self._threads:
                thread.join()


def _after(around: Around, call: Call, token: object, outcome: Outcome) -> None:
    try:
        around.after(call, token, outcome)
    except Exception:
        log.exception("the processing after a listener call failed queue=%s", call.context.queue)


def _since_ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


def is_coroutine_listener(listener: Callable[..., object]) -> bool:
    """Return True if the listener must be awaited: a coroutine function, or an object with async __call__."""
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - asks whether it is async, not callable
    )


def make_pool(listener: Listener, around: Around, concurrency: int, runner: Runner) -> ListenerPool:
    """Create the pool that suits the listener."""
    if is_coroutine_listener(listener):
        return CoroutinePool(listener, around, concurrency, runner)
    return ThreadPool(listener, around, concurrency, runner.name)


def direct_result(outcome: Outcome | None, *, orderly: bool) -> dict[str, object]:
    """Return ConsumeMessageDirectlyResult (wire.md 2.4)."""
    remark: str | None
    if outcome is None:
        result, remark = "CR_LATER", "the consumer is shutting down"
    elif outcome.error is not None:
        result = "CR_THROW_EXCEPTION"
        remark = f"{type(outcome.error).__name__}: {outcome.error}"
    else:
        result = "CR_SUCCESS" if outcome.result is ConsumeResult.SUCCESS else "CR_LATER"
        remark = None
    return {
        "autoCommit": True,
        "consumeResult": result,
        "order": orderly,
        "remark": remark,
        "spentTimeMills": outcome.cost_ms if outcome else 0,
    }
