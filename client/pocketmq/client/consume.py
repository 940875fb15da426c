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
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument
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
    outcome None. cost_s: how long the listener took, set where it succeeded.
    """

    messages: list[MessageExt]
    context: ConsumeContext
    done: Callable[["Call", Outcome | None], None]
    process_queue: ProcessQueue | None = None
    cost_s: float = 0.0


Together = Callable[[list[Call]], None]
"""Takes the calls of one turn of the loop that succeeded with all their messages."""


class Around(Protocol):
    """Hooks right before and after the listener, in its thread or task: traces."""

    def before(self, call: Call) -> object:
        """Return what `after` is given."""
        ...

    def after(self, call: Call, token: object, outcome: Outcome) -> None: ...


def _judge(listener_result: object) -> ConsumeResult:
    if listener_result is None:
        return ConsumeResult.SUCCESS
    if isinstance(listener_result, ConsumeResult):
        return listener_result
    raise TypeError(f"a listener must return a ConsumeResult or None, not {listener_result!r}")


class ListenerPool:
    """Calls the listener, at most `concurrency` at a time.

    1. A call of a queue that this client still has, and whose messages all succeeded, goes to `together` with
       the others of this turn of the loop, not to its own `done`. Until then it stands in `succeeded`.
    2. A call ends, for `drain`, once either has it.
    """

    def __init__(
        self, listener: Listener, around: Sequence[Around], concurrency: int, clock: Clock
    ) -> None:
        self._listener = listener
        self._around = around
        self._concurrency = concurrency
        self._clock = clock
        self._together: Together | None = None
        self.succeeded: list[Call] = []
        self._under_way = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, together: Together | None = None) -> None:
        """together: None has every call passed to its `done`."""
        self._together = together

    def submit(self, calls: Sequence[Call]) -> None:
        if not self._under_way:
            self._idle.clear()
        self._under_way += len(calls)

    def settle(self) -> None:
        """Pass on what has succeeded in this turn (invariant 1)."""
        calls = self.succeeded[:]
        self.succeeded.clear()
        if not calls or self._together is None:
            return
        try:
            self._together(calls)
        except Exception:
            log.exception("could not process consume results queue=%s", calls[0].context.queue)
        finally:
            self._end(len(calls))

    def _done(self, call: Call, outcome: Outcome | None) -> None:
        try:
            call.done(call, outcome)
        except Exception:
            log.exception("could not process a consume result queue=%s", call.context.queue)
        finally:
            self._end(1)

    def _end(self, count: int) -> None:
        self._under_way -= count
        if self._under_way == 0:
            self._idle.set()

    def _unwanted(self, call: Call) -> bool:
        queue = call.process_queue
        return self._draining or (queue is not None and queue.dropped)

    def _ended_well(self, call: Call) -> bool:
        """Return whether `together` takes a call that returned SUCCESS."""
        queue = call.process_queue
        return (
            self._together is not None
            and queue is not None
            and not queue.dropped
            and call.context.ack_index >= len(call.messages) - 1
        )

    def _after(self, call: Call, tokens: list[object], outcome: Outcome) -> None:
        try:
            for each, token in zip(reversed(self._around), reversed(tokens), strict=True):
                each.after(call, token, outcome)
        except Exception:
            log.exception(
                "the processing after a listener call failed queue=%s", call.context.queue
            )

    async def drain(self, within_ms: int) -> bool:
        """Wait for running calls; pending ones are cancelled. False: not all ended."""
        self._draining = True
        try:
            async with asyncio.timeout(within_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Do nothing more: whoever called the listener has ended, or is ended by the runner."""


class _Stamp:
    """The wall clock as messages carry it, read once in a millisecond."""

    __slots__ = ("_clock", "_stale_at", "_text")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stale_at = 0.0
        self._text = ""

    def at(self, now: float) -> str:
        """The time of the call that begins at `now`, seconds of time.monotonic."""
        if now >= self._stale_at:
            self._text = str(self._clock.now_ms())
            self._stale_at = now + 0.001
        return self._text


class CoroutinePool(ListenerPool):
    """Awaits a coroutine function on the event loop."""

    # A listener that never waits would keep the loop for a whole backlog.
    _TURN_S = 0.005

    def __init__(
        self,
        listener: Listener,
        around: Sequence[Around],
        concurrency: int,
        clock: Clock,
        runner: Runner,
    ) -> None:
        super().__init__(listener, around, concurrency, clock)
        self._runner = runner
        self._calls: deque[Call] = deque()
        self._resting: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def start(self, together: Together | None = None) -> None:
        super().start(together)
        for number in range(self._concurrency):
            self._runner.spawn(self._work(), name=f"listener-{number}")

    def submit(self, calls: Sequence[Call]) -> None:
        super().submit(calls)
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
        succeeded, read_clock, stamp = self.succeeded, time.monotonic, _Stamp(self._clock)
        # The clock is read once a call: one begins when the one before has ended, or after a rest.
        now = turn_ends = 0.0
        while True:
            if now >= turn_ends or not calls:
                await (self._rest() if not calls else asyncio.sleep(0))
                now = read_clock()
                turn_ends = now + self._TURN_S
                continue
            call = calls.popleft()
            if self._unwanted(call):
                self._done(call, None)
                continue
            began, started = now, stamp.at(now)
            tokens: list[object] | None = None
            try:
                for message in call.messages:
                    message.note_start(started)
                if around:
                    tokens = [each.before(call) for each in around]
                returned = await listener(call.messages, call.context)  # type: ignore[misc]
                result = _SUCCESS if returned is None else _judge(returned)
                now = read_clock()
                if result is _SUCCESS and tokens is None and self._ended_well(call):
                    call.cost_s = now - began
                    if not succeeded:
                        loop.call_soon(self.settle)
                    succeeded.append(call)
                    continue
                outcome = Outcome(result, None, int((now - began) * 1000))
            except Exception as error:  # noqa: BLE001 - the listener's fault is an outcome
                now = read_clock()
                outcome = Outcome(None, error, int((now - began) * 1000))
            except BaseException:
                self._end(1)
                raise
            if tokens is not None:
                self._after(call, tokens, outcome)
            self._done(call, outcome)

    async def _rest(self) -> None:
        while not self._calls:
            rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            await rest


class ThreadPool(ListenerPool):
    """Calls a plain function in threads, which are started on demand.

    Results of the threads are collected and passed to the event loop in one go, not one by one.
    """

    def __init__(
        self,
        listener: Listener,
        around: Sequence[Around],
        concurrency: int,
        clock: Clock,
        name: str,
    ) -> None:
        super().__init__(listener, around, concurrency, clock)
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._finished: deque[tuple[Call, Outcome | None]] = deque()
        self._handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, together: Together | None = None) -> None:
        super().start(together)
        self._loop = asyncio.get_running_loop()

    def submit(self, calls: Sequence[Call]) -> None:
        super().submit(calls)
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
        take, finished = self._calls.get, self._finished
        stamp = _Stamp(self._clock)
        while (call := take()) is not None:
            finished.append((call, None if self._unwanted(call) else self._call(call, stamp)))
            # Set before the loop empties the deque, so a call is never left behind unannounced.
            if not self._handing_over:
                self._handing_over = True
                assert self._loop is not None
                try:
                    self._loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:
                    return  # the loop is closed: nobody is left to tell

    def _call(self, call: Call, stamp: _Stamp) -> Outcome:
        began = time.monotonic()
        started = stamp.at(began)
        tokens: list[object] | None = None
        try:
            for message in call.messages:
                message.note_start(started)
            if self._around:
                tokens = [each.before(call) for each in self._around]
            returned = self._listener(call.messages, call.context)
            result = _SUCCESS if returned is None else _judge(returned)
            call.cost_s = time.monotonic() - began
            if result is _SUCCESS and call.cost_s < 0.001:
                outcome = _AT_ONCE
            else:
                outcome = Outcome(result, None, int(call.cost_s * 1000))
        except Exception as error:  # noqa: BLE001 - the listener's fault is an outcome
            outcome = Outcome(None, error, int((time.monotonic() - began) * 1000))
        if tokens is not None:
            self._after(call, tokens, outcome)
        return outcome

    def _hand_over(self) -> None:
        self._handing_over = False
        finished = self._finished
        while finished:
            call, outcome = finished.popleft()
            if outcome is not None and outcome.result is _SUCCESS and self._ended_well(call):
                self.succeeded.append(call)
            else:
                self._done(call, outcome)
        self.settle()

    async def stop(self) -> None:
        """End the threads; one that is still in a listener is left to end by itself."""
        for _ in self._threads:
            self._calls.put(None)
        if self._under_way == 0:
            # All wait for a call and get None: this takes microseconds.
            for thread in self._threads:
                thread.join()


_AT_ONCE = Outcome(_SUCCESS, None, 0)


def is_coroutine_listener(listener: Callable[..., object]) -> bool:
    """Return True if the listener must be awaited: a coroutine function, or an object with async __call__."""
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - asks whether it is async, not callable
    )


def check_takes(function: Callable[..., object], *arguments: str) -> None:
    """Check that a function can be called with so many arguments. Raises: IllegalArgument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions in C do not tell what they take.
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "listener")
        name = name if name.isidentifier() else "listener"
        raise IllegalArgument(
            f"{name}{signature} cannot be called with {' and '.join(arguments)}: {error}. "
            f"Write: def {name}({', '.join(arguments)})"
        ) from None


def make_pool(
    listener: Listener, around: Sequence[Around], concurrency: int, clock: Clock, runner: Runner
) -> ListenerPool:
    """Create the pool that suits the listener."""
    if is_coroutine_listener(listener):
        return CoroutinePool(listener, around, concurrency, clock, runner)
    return ThreadPool(listener, around, concurrency, clock, runner.name)


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
